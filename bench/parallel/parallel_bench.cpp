// SPDX-License-Identifier: Apache-2.0
// Training steps of LeNet: replicas on threads against one replica, against PyTorch's DistributedDataParallel over Gloo
// and against one process with two intra-op threads. Every contender is a process (or two) of its own, as users run
// them; they take turns, so that what else the machine does meets all alike.
#include <torch/nn.h>
#include <torch/optim.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/numerics.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "parallel/lenet.h"
#include "support/interleave.h"
#include "support/peer.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Load {
  int64_t replicas;
  std::string devices;
  int64_t batch;
  parallel::MemoryFormat format;
};

// Reads orders and carries them out: each replica asks replica 0 how many steps come next.
int serve(const Load& load) {
  tune_allocator();
  pin_numerics();
  torch::manual_seed(0);
  const auto images = torch::randn({load.batch, 1, 28, 28}), labels = torch::randint(10, {load.batch});
  const LeNet made;
  int steps = 0;
  parallel::Team::create({.replicas = load.replicas, .devices = load.devices}).run([&](parallel::Replica& me) {
    auto net = me.share(made, {load.format});
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.01});
    const auto inputs = me.share_of(images).clone(), targets = me.share_of(labels).clone();
    for (;;) {
      if (me.number() == 0 && !(std::cin >> steps)) steps = 0;
      me.barrier();
      const int count = steps;
      me.barrier();  // everybody has read it
      if (count == 0) return;
      const auto start = Clock::now();
      for (int step = 0; step < count; ++step)
        me.step(torch::nn::functional::cross_entropy(net->forward(inputs), targets), optimizer);
      if (me.number() == 0) std::cout << seconds_since(start) / count << "\n" << std::flush;
    }
  });
  return 0;
}

struct Contender {
  std::string name;
  std::unique_ptr<Peer> peer;
};

std::string replicas_command(const std::string& self, int64_t replicas, const char* devices, int64_t batch,
                             const char* format) {
  return text("'", self, "' --serve ", replicas, " ", devices, " ", batch, " ", format);
}

std::string torch_command(int rank, int world, int threads, int64_t batch, const char* format) {
  static int port = 20000 + getpid() % 20000;
  if (rank == 0) ++port;
  return text("'" LOCKSTEP_PYTHON "' '" LOCKSTEP_DDP_PEER "' ", rank, " ", world, " ", port, " ", threads, " ", batch,
              " ", format);
}

std::vector<Contender> contenders(const std::string& self, int64_t batch) {
  std::vector<Contender> all;
  const auto add = [&](const char* name, const std::vector<std::string>& commands) {
    all.push_back({name, std::make_unique<Peer>(commands)});
  };
  add("2 replicas, 2 threads", {replicas_command(self, 2, "cpu:2", batch, "automatic")});
  add("2 replicas, 2 threads, contiguous", {replicas_command(self, 2, "cpu:2", batch, "contiguous")});
  add("8 replicas, 2 threads", {replicas_command(self, 8, "cpu:2", batch, "automatic")});
  add("1 replica, 1 thread", {replicas_command(self, 1, "cpu:1", batch, "automatic")});
  for (const char* format : {"contiguous", "channels_last"}) {
    const bool last = format[1] == 'h';
    const std::string rank0 = torch_command(0, 2, 1, batch, format);
    add(last ? "PyTorch DDP, 2 processes, channels-last" : "PyTorch DDP, 2 processes",
        {rank0, torch_command(1, 2, 1, batch, format)});
    add(last ? "PyTorch, 2 intra-op threads, channels-last" : "PyTorch, 2 intra-op threads",
        {torch_command(0, 1, 2, batch, format)});
  }
  return all;
}

void compare(const std::string& self, int64_t batch, int rounds, nlohmann::json& results) {
  auto all = contenders(self, batch);
  const int steps = static_cast<int>(std::max<int64_t>(4, 4096 / batch));
  std::vector<std::function<double()>> runs;
  for (auto& contender : all) runs.push_back([&] { return contender.peer->run(steps); });
  const auto seconds = interleave(rounds, runs);
  std::printf("LeNet, SGD, batch %ld\n", static_cast<long>(batch));
  for (size_t c = 0; c < all.size(); ++c) {
    const double times = ratio(seconds[c], seconds[0]);
    std::printf("  %-44s %8.2f ms a step, %5.2f times the first; %5.0f MiB\n", all[c].name.c_str(),
                1e3 * median(seconds[c]), times, all[c].peer->peak_mib());
    results.push_back({{"network", "LeNet"},
                       {"batch", batch},
                       {"contender", all[c].name},
                       {"ms_per_step", 1e3 * median(seconds[c])},
                       {"times_first", times},
                       {"peak_mib", all[c].peer->peak_mib()}});
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc == 6 && std::string_view(argv[1]) == "--serve")
    return serve({std::stoll(argv[2]), argv[3], std::stoll(argv[4]),
                  std::string_view(argv[5]) == "contiguous" ? parallel::MemoryFormat::contiguous
                                                            : parallel::MemoryFormat::automatic});
  require(argc == 1 || (argc == 3 && std::string_view(argv[1]) == "--json"), "parallel_bench",
          "got unknown arguments, expected none or --json FILE");
  char self[4096] = {};
  require(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "parallel_bench", "cannot read /proc/self/exe");
  nlohmann::json results = nlohmann::json::array();
  for (const int64_t batch : {64, 256, 1024}) compare(self, batch, 9, results);
  if (argc == 3) std::ofstream(argv[2]) << results.dump(1) << '\n';
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
