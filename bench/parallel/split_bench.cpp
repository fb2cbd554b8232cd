// SPDX-License-Identifier: Apache-2.0
// Two threads that divide the batch, the network (a pipeline of two parts) or each layer's slices, against one thread,
// and what slices cost on one. Eight replicas of an even perceptron and of a VGG with batch norms. Every contender is a
// process of its own; they take turns.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/timeline.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "support/interleave.h"
#include "support/peer.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReplicas = 8;

// Eight layers of the same size, so that there is an even cut.
torch::nn::Sequential make_mlp() {
  torch::nn::Sequential layers;
  for (int layer = 0; layer < 8; ++layer) {
    layers->push_back(torch::nn::Linear(1024, 1024));
    layers->push_back(torch::nn::ReLU());
  }
  return layers;
}

torch::nn::Sequential make_vgg() {
  torch::nn::Sequential layers;
  int64_t in = 3;
  for (const int64_t out : {64, 128, 256, 256}) {
    layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
    layers->push_back(torch::nn::BatchNorm2d(out));
    layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2)));
    in = out;
  }
  layers->push_back(torch::nn::Flatten());
  layers->push_back(torch::nn::Linear(4 * in, 10));
  return layers;
}

// Reads numbers of steps and makes them. Answers with the seconds of a step and the share of the threads' time that was
// spent waiting.
template <class Network>
void serve(const Network& made, const torch::Tensor& examples, const parallel::TeamOptions& options) {
  const auto labels = torch::randint(10, {examples.size(0)});
  const auto team = parallel::Team::create(options);
  const auto threads = static_cast<double>(parse_devices(options.devices).size());
  int steps = 0;
  std::vector<Timings> spent(kReplicas);
  team.run([&](parallel::Replica& me) {
    auto net = me.share(made);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.001});
    const auto inputs = me.share_of(examples).clone(), targets = me.share_of(labels).clone();
    for (;;) {
      if (me.number() == 0 && !(std::cin >> steps)) steps = 0;
      me.barrier();
      const int count = steps;
      me.barrier();  // everybody has read it
      if (count == 0) return;
      const Timings before = me.timings();
      const auto start = Clock::now();
      for (int step = 0; step < count; ++step)
        me.step(torch::nn::functional::cross_entropy(net->forward(inputs), targets), optimizer);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      spent[me.number()] = me.timings() - before;
      me.barrier();
      if (me.number() != 0) continue;
      double busy = 0;
      for (const Timings& one : spent) busy += one.total() - one[Phase::wait];
      std::cout << seconds / count << " " << 1 - busy / (threads * seconds) << "\n" << std::flush;
    }
  });
}

void serve(const std::vector<std::string>& words) {
  const parallel::TeamOptions options{.replicas = kReplicas,
                                      .devices = words.at(1),
                                      .slices = std::stoll(words.at(3)),
                                      .split = parallel::parse_split(words.at(2))};
  tune_allocator();
  pin_numerics();
  torch::manual_seed(0);
  if (words.at(0) == "mlp") return serve(make_mlp(), torch::randn({1024, 1024}), options);
  const torch::nn::Sequential made = make_vgg();
  norm::convert_sync_batchnorm(made, norm::BatchNormMode::ghost);
  serve(made, torch::randn({128, 3, 32, 32}), options);
}

void compare(const std::string& network, int steps, nlohmann::json& results) {
  struct Contender {
    const char *name, *devices, *split;
    int slices;
  };
  constexpr Contender contenders[] = {{"1 thread", "cpu:1", "data", 1},
                                      {"1 thread, S = 4", "cpu:1", "data", 4},
                                      {"2 threads, data", "cpu:2", "data", 1},
                                      {"2 threads, p2", "cpu:2", "p2", 1},
                                      {"2 threads, t2, S = 4", "cpu:2", "t2", 4}};
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<std::function<double()>> runs;
  for (const Contender& one : contenders) {
    const std::string command = text(serve_command(), network, " ", one.devices, " ", one.split, " ", one.slices);
    peers.push_back(std::make_unique<Peer>(std::vector{command}));
    runs.push_back([peer = peers.back().get(), steps] { return peer->run(steps); });
  }
  const auto seconds = interleave(9, runs);
  std::printf("%s, %ld replicas\n", network.c_str(), static_cast<long>(kReplicas));
  for (size_t c = 0; c < peers.size(); ++c) {
    const double speedup = ratio(seconds[0], seconds[c]), mib = peers[c]->peak_mib(), idle = peers[c]->answer().at(1);
    std::printf("  %-20s %8.2f ms a step, x%.2f; %5.0f MiB; replicas' threads idle %4.1f %%\n", contenders[c].name,
                1e3 * median(seconds[c]), speedup, mib, 100 * idle);
    results.push_back({{"network", network},
                       {"contender", contenders[c].name},
                       {"ms_per_step", 1e3 * median(seconds[c])},
                       {"speedup", speedup},
                       {"peak_mib", mib},
                       {"idle_share", idle}});
  }
  std::fflush(stdout);
}

nlohmann::json measure(const Arguments& arguments) {
  const std::string only = arguments.text("--only", "");
  if (!only.empty() && only != "mlp" && only != "vgg")
    throw UsageError("--only is '" + only + "', expected mlp or vgg");
  nlohmann::json results = nlohmann::json::array();
  if (only != "vgg") compare("mlp", 4, results);
  if (only != "mlp") compare("vgg", 2, results);
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "A step on two threads that divide the batch, or the network in two parts as well.",
                      .measure = measure,
                      .options = {{"--only", "NETWORK", "mlp or vgg"}},
                      .serve = serve});
}
