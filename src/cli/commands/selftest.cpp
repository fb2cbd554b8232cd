// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "cli/commands/burn.h"
#include "cli/commands/commands.h"
#include "lockstep/base/detail/median.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/selftest.h"
#include "lockstep/numerics/device_choice.h"

namespace lockstep::cli {
namespace {

using comm::Environment;
using comm::Group;

struct SelftestOptions {
  std::string backend = "all";
  int threads = 0;  // 0: the cores that this process has for itself, 2 to 8
  double timeout = 60;
  bool bandwidth = false;
  std::optional<double> burn = {};
};

// Bytes of the tensors that are timed.
constexpr std::array<int64_t, 3> bandwidth_bytes{4 << 10, 1 << 20, 25 << 20};

using Seconds = std::array<double, bandwidth_bytes.size()>;

// The same number of calls on all ranks, whatever each of them measures.
int calls_for(int64_t bytes) {
  return bytes <= 1 << 16 ? 200 : bytes <= 1 << 22 ? 40 : 7;
}

double seconds_of_one(const Group& group, const at::Tensor& tensor) {
  const auto start = std::chrono::steady_clock::now();
  group.all_reduce(tensor).wait();
  if (tensor.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(tensor.device().index());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds that a canonical all_reduce of float32 takes here, the median of several calls, for each of bandwidth_bytes.
// Collective; takes a second or two.
Seconds measure_all_reduce(const Group& group, c10::Device device) {
  Seconds medians{};
  for (size_t s = 0; s < bandwidth_bytes.size(); ++s) {
    const auto tensor = at::zeros({bandwidth_bytes[s] / 4}, at::device(device).dtype(at::kFloat));
    std::vector<double> seconds;
    for (int call = 0; call < calls_for(bandwidth_bytes[s]); ++call) seconds.push_back(seconds_of_one(group, tensor));
    const auto warm = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 5);
    medians[s] = median({warm, seconds.end()});
  }
  return medians;
}

// What became of one backend.
struct Outcome {
  std::string ranks;
  int checks = 0;
  bool failed = false;
  std::optional<Seconds> seconds = {};
};

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

class Selftest {
 public:
  explicit Selftest(const SelftestOptions& options)
      : options_(options), place_(comm::read_environment()), timeout_(static_cast<int64_t>(options.timeout * 1000)) {
    threads_ = options.threads > 0 ? options.threads : std::clamp(cpu_info().cores / place_.local_size, 2, 8);
  }

  int run();

 private:
  Outcome run_backend(const std::string& backend);
  Outcome run_local();
  Outcome run_processes(const std::string& backend);
  Outcome run_hierarchical();
  Outcome run_threads(const std::function<Group(int)>& member, c10::Device device);
  Outcome run_member(const Group& group, c10::Device device, const std::string& who);
  comm::ConnectOptions connect_to(const std::string& backend, const std::string& name) const;
  std::string carrier() const;
  void print(const std::string& line) const;
  void print_row(const std::string& backend, const Outcome& outcome) const;
  void print_bandwidth(const std::vector<std::pair<std::string, Outcome>>& rows) const;

  const SelftestOptions& options_;
  const Environment place_;
  const std::chrono::milliseconds timeout_;
  int threads_;
};

const std::vector<std::string>& all_backends() {
  static const std::vector<std::string> all{"local", "gloo", "mpi", "nccl", "hierarchical"};
  return all;
}

std::string milliseconds(double seconds) {
  std::ostringstream out;
  out << std::setprecision(3);
  if (seconds < 1e-3)
    out << seconds * 1e6 << " us";
  else
    out << seconds * 1e3 << " ms";
  return out.str();
}

// What carries the sums between processes for the hierarchical group.
std::string Selftest::carrier() const {
  return contains(comm::backends(), "gloo") ? "gloo" : "mpi";
}

comm::ConnectOptions Selftest::connect_to(const std::string& backend, const std::string& name) const {
  comm::ConnectOptions options;
  options.backend = backend;
  options.name = name;
  options.timeout = timeout_;
  return options;
}

int Selftest::run() {
  const auto chosen = options_.backend == "all" ? all_backends() : std::vector<std::string>{options_.backend};
  print(text("selftest: ", place_.size, place_.size == 1 ? " process" : " processes", " of ", threads_,
             threads_ == 1 ? " thread" : " threads", " (launcher: ", place_.launcher, ")"));
  print("backend       ranks     checks  result");
  std::vector<std::pair<std::string, Outcome>> rows;
  bool failed = false;
  for (const auto& backend : chosen) try {
      rows.emplace_back(backend, run_backend(backend));
      print_row(backend, rows.back().second);
      failed |= rows.back().second.failed;
    } catch (const Error& error) {  // it can't be used here
      if (options_.backend != "all") throw;
      print(text(std::left, std::setw(14), backend, "-              -  left out: ", error.what()));
    }
  if (options_.bandwidth) print_bandwidth(rows);
  return failed ? 1 : 0;
}

Outcome Selftest::run_backend(const std::string& backend) {
  try {
    if (backend == "local") return run_local();
    if (backend == "hierarchical") return run_hierarchical();
    require(place_.size > 1, "selftest", backend,
            " joins processes, and this is one, expected several: ", "lockstep run -n 2 -- lockstep selftest");
    return run_processes(backend);
  } catch (const comm::CommError& error) {
    std::fprintf(stderr, "selftest: rank %d, %s: %s\n", place_.rank, backend.c_str(), error.what());
    return {.ranks = "-", .failed = true};
  }
}

Outcome Selftest::run_local() {
  auto groups = comm::local_groups(threads_, timeout_);
  return run_threads([&](int thread) { return std::move(groups[thread]); }, at::kCPU);
}

Outcome Selftest::run_processes(const std::string& backend) {
  const auto device = backend == "nccl" ? parse_devices(usual_devices(place_.local_rank, place_.local_size))[0].torch()
                                        : c10::Device(at::kCPU);
  return run_member(comm::connect(place_, connect_to(backend, backend)), device, text("rank ", place_.rank));
}

Outcome Selftest::run_hierarchical() {
  auto threads = comm::local_groups(threads_, timeout_);
  const Group processes = place_.size == 1 ? Group() : comm::connect(place_, connect_to(carrier(), "hierarchical"));
  const auto join = [&](int thread) {
    const Group mine = std::move(threads[thread]);
    return comm::hierarchical_group(mine, processes);
  };
  auto outcome = run_threads(join, at::kCPU);
  outcome.ranks = text(place_.size, " x ", threads_);
  processes.finish();
  return outcome;
}

Outcome Selftest::run_threads(const std::function<Group(int)>& member, c10::Device device) {
  std::vector<Outcome> outcomes(threads_);
  std::vector<std::thread> threads;
  for (int t = 0; t < threads_; ++t)
    threads.emplace_back([&, t] {
      try {
        outcomes[t] = run_member(member(t), device, text("rank ", place_.rank, ", thread ", t));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "selftest: rank %d, thread %d: %s\n", place_.rank, t, error.what());
        outcomes[t].failed = true;
      }
    });
  for (auto& thread : threads) thread.join();
  Outcome outcome = outcomes[0];
  for (const auto& other : outcomes) outcome.failed |= other.failed;
  return outcome;
}

Outcome Selftest::run_member(const Group& group, c10::Device device, const std::string& who) {
  constexpr size_t most_lines = 10;
  const auto report = comm::selftest(group, device);
  for (size_t f = 0; f < std::min(report.failures.size(), most_lines); ++f)
    std::fprintf(stderr, "selftest: %s, %s: %s\n", who.c_str(), group.backend().c_str(), report.failures[f].c_str());
  if (report.failures.size() > most_lines)
    std::fprintf(stderr, "selftest: %s, %s: and %zu more\n", who.c_str(), group.backend().c_str(),
                 report.failures.size() - most_lines);

  Outcome outcome{.ranks = text(group.size()), .checks = report.checks, .failed = !report.failures.empty()};
  const auto failed = at::full({1}, outcome.failed ? 1 : 0, at::device(device).dtype(at::kInt));
  group.all_reduce(failed, ReduceOp::max).wait();
  outcome.failed |= failed.item<int>() != 0;
  if (options_.bandwidth && group.size() > 1) outcome.seconds = measure_all_reduce(group, device);
  group.finish();
  return outcome;
}

void Selftest::print(const std::string& line) const {
  if (place_.rank != 0) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Selftest::print_row(const std::string& backend, const Outcome& outcome) const {
  print(text(std::left, std::setw(14), backend, std::setw(8), outcome.ranks, std::right, std::setw(8), outcome.checks,
             "  ", outcome.failed ? "failed" : "ok"));
}

void Selftest::print_bandwidth(const std::vector<std::pair<std::string, Outcome>>& rows) const {
  print(
      "\nall_reduce of float32, canonical: median time, and bytes of the tensor a second\nbackend       ranks"
      "           4 KiB                1 MiB               25 MiB");
  for (const auto& [backend, outcome] : rows) {
    if (!outcome.seconds) continue;
    std::ostringstream line;
    line << std::left << std::setw(14) << backend << std::setw(6) << outcome.ranks << std::right;
    for (size_t s = 0; s < bandwidth_bytes.size(); ++s)
      line << std::setw(10) << milliseconds((*outcome.seconds)[s]) << std::setw(6) << std::setprecision(2) << std::fixed
           << static_cast<double>(bandwidth_bytes[s]) / (*outcome.seconds)[s] * 1e-9 << " GB/s";
    print(line.str());
  }
}

int selftest(const SelftestOptions& options) {
  require(options.backend == "all" || contains(all_backends(), options.backend), "selftest", "--backend is '",
          options.backend, "', expected all, local, gloo, mpi, nccl or hierarchical",
          did_you_mean(options.backend, all_backends()));
  require(options.threads >= 0 && options.threads <= 256, "selftest", "--threads is ", options.threads,
          ", expected 1 to 256");
  require(std::isfinite(options.timeout) && options.timeout > 0 && options.timeout < 1e6, "selftest", "--timeout is ",
          options.timeout, ", expected seconds, more than 0");
  if (options.burn)
    return burn(*options.burn, comm::read_environment(),
                std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1000)));
  return Selftest(options).run();
}

}  // namespace

void setup_selftest(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<SelftestOptions>();
  CLI::App* command = app.add_subcommand("selftest", "Run every collective on every backend and say ok or what failed");
  command->footer("Alone, or in all processes of a run: lockstep run -n 2 -- lockstep selftest");
  command->add_option("--backend", options->backend, "all (the default), local, gloo, mpi, nccl or hierarchical");
  command->add_option("--threads", options->threads, "Ranks within each process; default: its share of the cores");
  command->add_option("--timeout", options->timeout, "Seconds a rank may let the others wait; default 60");
  command->add_flag("--bandwidth", options->bandwidth, "Time all_reduce too");
  command->add_option(
      "--burn", options->burn,
      "Do the same work on each core for so many seconds instead, and name a core that computes wrongly");
  command->callback([options, &chosen] { chosen = [options] { return selftest(*options); }; });
}

}  // namespace lockstep::cli
