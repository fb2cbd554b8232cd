// SPDX-License-Identifier: Apache-2.0
// Training steps of LeNet and of ResNet-18 with synchronised batch norms: replicas on threads against one replica,
// against PyTorch's DistributedDataParallel over Gloo and against one process with two intra-op threads. Every
// contender is a process (or two) of its own, as users run them; they take turns, so that what else the machine does
// meets all alike.
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/timeline.h"
#include "lockstep/comm/connect.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "parallel/networks.h"
#include "support/interleave.h"
#include "support/peer.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Load {
  std::string network;
  int64_t replicas;
  std::string devices;
  int64_t batch;
  std::string format;
  std::string order;
};

// Reads orders and carries them out: each replica asks the first one of its process how many steps come next. Answers
// with the seconds of a step and the share of it that was spent waiting for gradients of other processes.
template <class Network>
void serve(const Load& load, const Network& made, const torch::Tensor& images) {
  const auto labels = torch::randint(10, {load.batch});
  const auto team =
      parallel::Team::create({.replicas = load.replicas,
                              .devices = load.devices,
                              .group = comm::connect(),
                              .order = load.order == "ring" ? parallel::Order::ring : parallel::Order::canonical});
  int steps = 0;
  team.run([&](parallel::Replica& me) {
    const bool first = me.number() == team.block().begin;
    auto net = me.share(
        made, {load.format == "contiguous" ? parallel::MemoryFormat::contiguous : parallel::MemoryFormat::automatic});
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.01});
    const auto inputs = me.share_of(images).clone(), targets = me.share_of(labels).clone();
    for (;;) {
      if (first && !(std::cin >> steps)) steps = 0;
      me.barrier();
      const int count = steps;
      me.barrier();  // everybody has read it
      if (count == 0) return;
      const Timings before = me.timings();
      const auto start = Clock::now();
      for (int step = 0; step < count; ++step)
        me.step(torch::nn::functional::cross_entropy(net->forward(inputs), targets), optimizer);
      const double seconds = seconds_since(start);
      const Timings spent = me.timings() - before;
      if (first) std::cout << seconds / count << " " << spent[Phase::exposed] / spent.total() << "\n" << std::flush;
    }
  });
}

void serve(const std::vector<std::string>& words) {
  const Load load{words.at(0), std::stoll(words.at(1)), words.at(2), std::stoll(words.at(3)), words.at(4), words.at(5)};
  tune_allocator();
  pin_numerics();
  torch::manual_seed(0);
  if (load.network == "lenet") {
    serve(load, LeNet(), torch::randn({load.batch, 1, 28, 28}));
  } else {
    const ResNet18 made;
    norm::convert_sync_batchnorm(made);
    serve(load, made, torch::randn({load.batch, 3, 64, 64}));
  }
}

struct Contender {
  std::string name;
  std::unique_ptr<Peer> peer;
};

/// Makes the contenders of one network and batch.
class Contenders {
 public:
  Contenders(std::string network, int64_t batch) : network_(std::move(network)), batch_(batch) {}

  void add_replicas(const char* name, int64_t replicas, const char* devices, const char* format = "automatic",
                    const char* order = "canonical", int processes = 1) {
    add(name,
        serve_commands(processes, text(network_, " ", replicas, " ", devices, " ", batch_, " ", format, " ", order)));
  }

  /// What the machine allows: programs that share it and nothing else, each with its part of the batch on one thread.
  void add_strangers(const char* name, int count) {
    const std::string serve = text(serve_command(), network_, " 1 cpu:1 ", batch_ / count, " automatic canonical");
    add(name, std::vector<std::string>(count, serve));
  }

  void add_torch(const char* name, int world, int threads, const char* format) {
    std::vector<std::string> commands;
    const int port = free_port();
    for (int rank = 0; rank < world; ++rank)
      commands.push_back(text("'" LOCKSTEP_PYTHON "' '" LOCKSTEP_PEERS "/ddp_peer.py' ", network_, " ", rank, " ",
                              world, " ", port, " ", threads, " ", batch_, " ", format));
    add(name, commands);
  }

  void compare(int steps, int rounds, nlohmann::json& results) {
    std::vector<std::function<double()>> runs;
    for (auto& contender : all_) runs.push_back([&] { return contender.peer->run(steps); });
    const auto seconds = interleave(rounds, runs);
    std::printf("%s, SGD, batch %ld\n", network_.c_str(), static_cast<long>(batch_));
    for (size_t c = 0; c < all_.size(); ++c) {
      const double times = ratio(seconds[c], seconds[0]), mib = all_[c].peer->peak_mib();
      const double exposed = all_[c].peer->answer().size() > 1 ? all_[c].peer->answer()[1] : 0;
      std::printf("  %-57s %8.2f ms a step, %5.2f times the first; %5.0f MiB; exposed %4.1f %%\n", all_[c].name.c_str(),
                  1e3 * median(seconds[c]), times, mib, 100 * exposed);
      results.push_back({{"network", network_},
                         {"batch", batch_},
                         {"contender", all_[c].name},
                         {"ms_per_step", 1e3 * median(seconds[c])},
                         {"times_first", times},
                         {"peak_mib", mib},
                         {"exposed_share", exposed}});
    }
    std::fflush(stdout);
  }

 private:
  void add(const char* name, const std::vector<std::string>& commands) {
    all_.push_back({name, std::make_unique<Peer>(commands)});
  }

  std::string network_;
  int64_t batch_;
  std::vector<Contender> all_;
};

void compare_lenet(int64_t batch, nlohmann::json& results) {
  Contenders all("lenet", batch);
  all.add_replicas("2 replicas, 2 threads", 2, "cpu:2");
  all.add_replicas("2 replicas, 2 threads, contiguous", 2, "cpu:2", "contiguous");
  all.add_replicas("8 replicas, 2 threads", 8, "cpu:2");
  all.add_replicas("1 replica, 1 thread", 1, "cpu:1");
  all.add_strangers("2 programs with half the batch, no exchange", 2);
  all.add_torch("PyTorch DDP, 2 processes", 2, 1, "contiguous");
  all.add_torch("PyTorch DDP, 2 processes, channels-last", 2, 1, "channels_last");
  all.add_torch("PyTorch DDP, 2 processes, torch.compile", 2, 1, "compiled");
  all.add_torch("PyTorch DDP, 2 processes, torch.compile, channels-last", 2, 1, "compiled_channels_last");
  all.add_torch("PyTorch, 2 intra-op threads", 1, 2, "contiguous");
  all.add_torch("PyTorch, 2 intra-op threads, channels-last", 1, 2, "channels_last");
  all.add_torch("PyTorch, 2 intra-op threads, torch.compile, channels-last", 1, 2, "compiled_channels_last");
  all.compare(static_cast<int>(std::max<int64_t>(4, 4096 / batch)), 9, results);
}

// 11.2 million weights, batch norms over all replicas, and what the contract costs between processes.
void compare_resnet(nlohmann::json& results) {
  Contenders all("resnet18", 16);
  all.add_replicas("2 replicas, 2 threads", 2, "cpu:2");
  all.add_replicas("4 replicas, 2 threads", 4, "cpu:2");
  all.add_replicas("2 replicas, 2 processes", 2, "cpu:1", "automatic", "canonical", 2);
  all.add_replicas("2 replicas, 2 processes, ring", 2, "cpu:1", "automatic", "ring", 2);
  all.add_replicas("1 replica, 1 thread", 1, "cpu:1");
  all.add_strangers("2 programs with half the batch, no exchange", 2);
  all.add_torch("PyTorch DDP, 2 processes", 2, 1, "contiguous");
  all.add_torch("PyTorch DDP, 2 processes, channels-last", 2, 1, "channels_last");
  all.compare(3, 9, results);
}

nlohmann::json compare(const Arguments& arguments) {
  const std::string only = arguments.text("--only", "");
  if (!only.empty() && only != "lenet" && only != "resnet18")
    throw UsageError("--only is '" + only + "', expected lenet or resnet18");
  nlohmann::json results = nlohmann::json::array();
  for (const int64_t batch : arguments.numbers("--batch", {64, 256, 1024}))
    if (only != "resnet18") compare_lenet(batch, results);
  if (only != "lenet") compare_resnet(results);
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(
      argc, argv,
      {.measures = "A step on several devices, against one device and PyTorch's DistributedDataParallel.",
       .measure = compare,
       .options = {{"--only", "NETWORK", "lenet or resnet18"},
                   {"--batch", "N", "this batch of LeNet alone; default 64, 256, 1024"}},
       .serve = serve});
}
