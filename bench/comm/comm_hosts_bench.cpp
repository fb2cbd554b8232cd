// SPDX-License-Identifier: Apache-2.0
// Canonical against ring between hosts, on Gloo: network namespaces of this machine with a cable of 1 Gbit/s each way
// (tools/hosts.sh). The program starts itself as the ranks; the two orders take turns in one run.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "support/interleave.h"
#include "support/program.h"

extern char** environ;

namespace lockstep::bench {
namespace {

using comm::Group;
using comm::Order;

constexpr int rounds = 7;
constexpr int skipped = 77;

struct Network {
  std::string name;
  int hosts;
  std::vector<std::string> options;
};

// Seconds of one all_reduce as rank 0 sees it, all ranks starting together.
double measure(const Group& group, const at::Tensor& tensor, Order order, int repetitions) {
  group.barrier().wait();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) group.all_reduce(tensor, ReduceOp::sum, {.order = order}).wait();
  group.barrier().wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repetitions;
}

// A rank: rank 0 writes what it measured.
void run_rank(const std::vector<std::string>& words) {
  at::set_num_threads(1);
  comm::ConnectOptions options;
  options.backend = "gloo";
  const Group group = comm::connect(options);
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t mebibytes : {1, 25, 100}) {
    const int64_t bytes = mebibytes << 20;
    const auto tensor = at::zeros({bytes / 4});
    const int repetitions = mebibytes == 1 ? 20 : 1;
    const auto seconds = interleave(rounds, {[&] { return measure(group, tensor, Order::canonical, repetitions); },
                                             [&] { return measure(group, tensor, Order::ring, repetitions); }});
    rows.push_back({{"bytes", bytes},
                    {"canonical_seconds", median(seconds[0])},
                    {"ring_seconds", median(seconds[1])},
                    {"canonical_over_ring", ratio(seconds[0], seconds[1])}});
  }
  if (group.rank() == 0) std::ofstream(words.at(0)) << rows;
  group.finish();
}

int run_command(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t process = -1;
  int status = 0;
  if (posix_spawn(&process, pointers[0], nullptr, nullptr, pointers.data(), environ) != 0) return 127;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

nlohmann::json run_hosts(const Network& network) {
  const auto file = std::filesystem::temp_directory_path() / text("lockstep-hosts-bench-", getpid(), ".json");
  std::vector<std::string> arguments{LOCKSTEP_HOSTS_SH};
  arguments.insert(arguments.end(), network.options.begin(), network.options.end());
  for (const auto& word : {std::to_string(network.hosts), std::string("sh"), std::string("-c"),
                           std::string("exec \"$1\" run -n 1 --no-prefix --hosts $HOSTS --rank-offset $HOST -- \"$2\" "
                                       "--serve \"$3\""),
                           std::string("sh"), std::string(LOCKSTEP_PROGRAM), own_path(), file.string()})
    arguments.push_back(word);
  const int code = run_command(arguments);
  if (code == skipped) return {{"skipped", "the kernel forbids network namespaces"}};
  require(code == 0, "comm_hosts_bench", "the hosts ended with exit code ", code, ", expected 0");
  nlohmann::json rows;
  std::ifstream(file) >> rows;
  std::filesystem::remove(file);
  for (const auto& row : rows)
    std::printf("%-20s %3d MiB  canonical %8.2f ms  ring %8.2f ms  canonical/ring %.2f\n", network.name.c_str(),
                row["bytes"].get<int>() >> 20, row["canonical_seconds"].get<double>() * 1e3,
                row["ring_seconds"].get<double>() * 1e3, row["canonical_over_ring"].get<double>());
  std::fflush(stdout);
  return rows;
}

nlohmann::json run_all(const Arguments&) {
  const auto built = comm::backends();
  nlohmann::json results;
  std::printf("all-reduce of float32 between hosts, one process each, Gloo; median of %d interleaved rounds\n", rounds);
  if (std::find(built.begin(), built.end(), "gloo") == built.end()) {
    std::printf("skipped: this build has no Gloo\n");
    results["skipped"] = "this build has no Gloo";
  } else {
    for (const Network& network :
         {Network{"2 hosts, 1 Gbit/s", 2, {"--rate", "1gbit"}}, Network{"3 hosts, 1 Gbit/s", 3, {"--rate", "1gbit"}},
          Network{"2 hosts, no limit", 2, {}}})
      results[network.name] = run_hosts(network);
  }
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "All-reduces between hosts that are network namespaces, canonical and by a ring.",
                      .measure = run_all,
                      .serve = run_rank});
}
