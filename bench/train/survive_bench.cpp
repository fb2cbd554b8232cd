// SPDX-License-Identifier: Apache-2.0
// What a lost process costs: from SIGKILL to the next new step, beside torchrun, which starts all again; what a new
// process costs the others as it joins; and what a step costs more where nothing happens.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "support/interleave.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kProcesses = 3;
constexpr int kSaveEvery = 10;  // steps between copies and between torchrun's checkpoints
constexpr int kBatch = 96;
constexpr int kWarm = 40;  // steps before anything is measured

std::string quoted(const fs::path& path) {
  return "'" + path.string() + "'";
}

// One run of a contender: a shell's command that starts processes, each of which leaves its number in the folder.
class Run {
 public:
  // `launcher` takes what each process runs as the last word.
  Run(const std::string& launcher, const std::string& process) {
    std::string pattern = fs::temp_directory_path() / "survive_bench.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("survive_bench: no folder for a run");
    folder_ = pattern;
    setenv("RUN", folder_.c_str(), 1);
    const fs::path script = folder_ / "process.sh";
    std::ofstream(script) << "echo $$ > $RUN/rank$RANK.new\nmv $RUN/rank$RANK.new $RUN/rank$RANK\nexec " << process
                          << "\n";
    const std::string command =
        "exec " + launcher + " sh " + quoted(script) + " > " + quoted(folder_ / "output") + " 2>&1 < /dev/null";
    process_ = fork();
    if (process_ == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
  }
  ~Run() {
    if (process_ > 0) {
      kill(process_, SIGTERM);
      waitpid(process_, nullptr, 0);
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Watches until `done` or the run's end, and notes each change of the newest step.
  void watch(const std::function<bool()>& done) {
    while (!done() && !ended()) {
      const int64_t now = newest_step();
      if (now != (seen_.empty() ? 0 : seen_.back().step)) seen_.push_back({Clock::now(), now});
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  void finish() {
    watch([] { return false; });
    if (code_ != 0)
      throw std::runtime_error("survive_bench: a run ended with " + std::to_string(code_) + ":\n" + read("output"));
  }

  int64_t step() const { return seen_.empty() ? 0 : seen_.back().step; }
  pid_t process_of(int rank) const {
    pid_t process = 0;
    std::istringstream(read("rank" + std::to_string(rank))) >> process;
    return process;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string metrics() const { return read(fs::exists(folder_ / "run") ? "run/metrics.jsonl" : "metrics.jsonl"); }

  /// When the first step above `step` was seen, after `start`.
  std::optional<Clock::time_point> first_above(int64_t step, Clock::time_point start) const {
    for (const Seen& seen : seen_)
      if (seen.when > start && seen.step > step) return seen.when;
    return std::nullopt;
  }
  /// The last change before the first step above `step`.
  Clock::time_point last_until(int64_t step) const {
    Clock::time_point last{};
    for (const Seen& seen : seen_) {
      if (seen.step > step) break;
      last = seen.when;
    }
    return last;
  }
  int64_t largest_before(Clock::time_point end) const {
    int64_t largest = 0;
    for (const Seen& seen : seen_)
      if (seen.when < end) largest = std::max(largest, seen.step);
    return largest;
  }
  /// Seconds of a step between two.
  double step_seconds(int64_t from, int64_t to) const {
    const auto begin = first_above(from - 1, {}), end = first_above(to - 1, {});
    require(begin && end, "survive_bench", "a run ended before step ", to);
    return std::chrono::duration<double>(*end - *begin).count() / static_cast<double>(to - from);
  }

 private:
  struct Seen {
    Clock::time_point when;
    int64_t step;
  };
  bool ended() {
    int status = 0;
    if (process_ > 0 && waitpid(process_, &status, WNOHANG) == process_) {
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      process_ = -1;
    }
    return process_ < 0;
  }
  int64_t newest_step() const {
    const fs::path file = fs::exists(folder_ / "run") ? folder_ / "run/metrics.jsonl" : folder_ / "metrics.jsonl";
    std::ifstream in(file, std::ios::ate);
    if (!in) return 0;
    constexpr std::streamoff kTail = 2048;
    const std::streamoff size = in.tellg();
    in.seekg(std::max<std::streamoff>(0, size - kTail));
    std::string tail{std::istreambuf_iterator<char>(in), {}};
    tail.resize(tail.rfind('\n') + 1);  // npos + 1 is 0
    const size_t at = tail.rfind("{\"step\":");
    return at == std::string::npos ? 0 : std::strtoll(tail.c_str() + at + 8, nullptr, 10);
  }

  fs::path folder_;
  pid_t process_ = -1;
  int code_ = 0;
  std::vector<Seen> seen_;
};

std::string program() {
  return quoted(fs::path(own_path()).parent_path().parent_path() / "bin/lockstep");
}

std::string lockstep_launcher(int processes, const std::string& options) {
  return program() + " run -n " + std::to_string(processes) + " " + options + " --";
}

std::string lockstep_process(int64_t steps, const std::string& options) {
  return program() + " train lenet --data synthetic:1x28x28:10:9600 --batch " + std::to_string(kBatch) +
         " --epochs 100 --steps " + std::to_string(steps) +
         " --replicas 6 --devices 1 --log-every 1 --no-curves --quiet --evaluate-every 0 --test-examples 1 "
         "--copy-every " +
         std::to_string(kSaveEvery) + " --out $RUN/run " + options;
}

// The numbers of an event's line: "... after step D; ... S s later, A steps done again".
struct Event {
  int64_t done, again;
};
std::optional<Event> event_of(const std::string& metrics, const std::string& what) {
  const size_t begin = metrics.find(what);
  if (begin == std::string::npos) return std::nullopt;
  const std::string line = metrics.substr(begin, metrics.find('\n', begin) - begin);
  const size_t done = line.find("after step "), again = line.rfind(", ");
  require(done != std::string::npos && again != std::string::npos, "survive_bench", "'", line,
          "' is no event, expected 'after step D; ... A steps done again'");
  return Event{std::stoll(line.substr(done + 11)), std::stoll(line.substr(again + 2))};
}

struct Loss {
  double all;          // seconds from the kill to the first step that is new
  double overhead;     // without the steps that were done again, and that step
  int64_t again;       // steps
  double joining = 0;  // seconds between the steps before and after a new process joined
  double step = 0;     // seconds of a step, undisturbed
};

void kill_one(Run& run, std::mt19937& draws) {
  const int64_t at = kWarm + 20 + static_cast<int64_t>(draws() % kSaveEvery);
  run.watch([&] { return run.step() >= at; });
  kill(run.process_of(static_cast<int>(draws() % kProcesses)), SIGKILL);
}

Loss lose_in_lockstep(std::mt19937& draws) {
  Run run(lockstep_launcher(kProcesses, "--survive --respawn"), lockstep_process(300, ""));
  kill_one(run, draws);
  const auto killed = Clock::now();
  run.finish();
  const std::string metrics = run.metrics();
  const auto lost = event_of(metrics, " was lost after step "),
             come = event_of(metrics, " came in addition after step ");
  require(lost && come, "survive_bench", "nobody was lost or nobody came in time:\n", run.read("output"));
  const auto next = run.first_above(lost->done, killed), joined = run.first_above(come->done, killed);
  require(next && joined, "survive_bench", "no step came after the loss");
  Loss out{};
  out.step = run.step_seconds(kWarm, kWarm + 20);
  out.all = std::chrono::duration<double>(*next - killed).count();
  out.again = lost->again;
  out.overhead = out.all - static_cast<double>(lost->again + 1) * out.step;
  out.joining = std::chrono::duration<double>(*joined - run.last_until(come->done)).count();
  return out;
}

Loss lose_in_torchrun(std::mt19937& draws) {
  const std::string python = quoted(LOCKSTEP_PYTHON);
  // A store that a restart shares has the dead workers' addresses, and Gloo's ranks may give up on them.
  setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1", 1);
  Run run(python + " -m torch.distributed.run --standalone --nproc-per-node " + std::to_string(kProcesses) +
              " --max-restarts 2 --no-python",
          python + " " + quoted(fs::path(LOCKSTEP_PEERS) / "survive_peer.py") + " $RUN 120 " +
              std::to_string(kSaveEvery) + " " + std::to_string(kBatch));
  kill_one(run, draws);
  const auto killed = Clock::now();
  run.finish();
  // All workers take longer than this to start again.
  const int64_t done = run.largest_before(killed + std::chrono::milliseconds(200));
  const auto next = run.first_above(done, killed);
  require(next.has_value(), "survive_bench", "torchrun's workers made no step after the loss:\n", run.read("output"));
  const std::string metrics = run.metrics();
  const int64_t resumed = std::stoll(metrics.substr(metrics.rfind("\"again_from\":") + 13));
  Loss out{};
  out.step = run.step_seconds(kWarm, kWarm + 20);
  out.all = std::chrono::duration<double>(*next - killed).count();
  out.again = done - resumed;
  out.overhead = out.all - static_cast<double>(out.again + 1) * out.step;
  return out;
}

double step_of(const std::string& launcher, const std::string& process) {
  constexpr int64_t kSteps = 400;
  Run run(lockstep_launcher(2, launcher), lockstep_process(kSteps, process));
  run.finish();
  return run.step_seconds(kWarm, kSteps - 1);
}

// Said as it comes: a run takes ten seconds.
Loss told(const char* of, const Loss& loss) {
  std::fprintf(stderr, "%s: %.3f s to the next new step, %lld steps again\n", of, loss.all,
               static_cast<long long>(loss.again));
  return loss;
}

template <class Of>
std::vector<double> each(const std::vector<Loss>& losses, Of of) {
  std::vector<double> out;
  for (const Loss& loss : losses) out.push_back(of(loss));
  return out;
}

nlohmann::json print(const char* name, const std::vector<Loss>& losses) {
  const auto all = each(losses, [](const Loss& loss) { return loss.all; });
  const auto overhead = each(losses, [](const Loss& loss) { return loss.overhead; });
  const double worst = *std::ranges::max_element(overhead);
  std::printf("%-28s %3zu kills: %.3f s to the next new step, %.3f s without repeated ones (longest %.3f s)\n", name,
              losses.size(), median(all), median(overhead), worst);
  return {{"name", name},
          {"kills", losses.size()},
          {"seconds", median(all)},
          {"overhead", median(overhead)},
          {"longest", worst}};
}

nlohmann::json measure(const Arguments& arguments) {
  const auto kills = arguments.number("--kills", 8), restarts = arguments.number("--restarts", 3);
  const auto rounds = static_cast<int>(arguments.number("--rounds", 3));
  std::mt19937 draws(static_cast<unsigned>(arguments.number("--seed", 1)));
  nlohmann::json results = nlohmann::json::array();
  std::vector<Loss> ours, torchruns;
  for (int64_t kill = 0; kill < kills; ++kill) {
    ours.push_back(told("lockstep run --survive", lose_in_lockstep(draws)));
    if (kill * restarts / kills != (kill + 1) * restarts / kills)
      torchruns.push_back(told("torchrun --max-restarts", lose_in_torchrun(draws)));
  }
  results.push_back(print("lockstep run --survive", ours));
  results.push_back(print("torchrun --max-restarts", torchruns));
  const auto ratio_of = [](const std::vector<double>& a, const std::vector<double>& b) {
    return median(a) / median(b);
  };
  const auto overhead = [](const Loss& loss) { return loss.overhead; };
  std::printf("torchrun takes %.1f times as long\n", ratio_of(each(torchruns, overhead), each(ours, overhead)));
  const auto joining = each(ours, [](const Loss& loss) { return loss.joining; });
  const auto step = each(ours, [](const Loss& loss) { return loss.step; });
  std::printf("a new process joins: %.1f ms between two steps (longest %.1f), a step is %.1f ms\n",
              1e3 * median(joining), 1e3 * *std::ranges::max_element(joining), 1e3 * median(step));
  results.push_back({{"name", "joining"}, {"seconds", median(joining)}, {"step_seconds", median(step)}});
  const auto seconds = interleave(rounds, {[] { return step_of("", ""); }, [] { return step_of("--survive", ""); },
                                           [] { return step_of("", "--audit 16"); }});
  const char* names[] = {"plain", "--survive", "--audit 16"};
  for (size_t c = 0; c < seconds.size(); ++c) {
    const double times = ratio(seconds[c], seconds[0]);
    std::printf("%-12s %.2f ms a step, %+.1f %%\n", names[c], 1e3 * median(seconds[c]), 100 * (times - 1));
    results.push_back({{"name", names[c]}, {"step_seconds", median(seconds[c])}, {"times_plain", times}});
  }
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "What a lost process costs, and being ready for one.",
                      .measure = measure,
                      .options = {{"--kills", "N", "of Lockstep's processes; default 8"},
                                  {"--restarts", "N", "of torchrun; default 3"},
                                  {"--rounds", "N", "of steps with and without; default 3"},
                                  {"--seed", "N", "of moments and victims; default 1"}}});
}
