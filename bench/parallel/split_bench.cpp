// SPDX-License-Identifier: Apache-2.0
// Two threads that divide the batch, the network (a pipeline of two parts) or each layer's slices, against one thread,
// and what slices cost on one; two processes that divide the batch or the network, and PyTorch's pipeline. Eight
// replicas of an even perceptron and of a VGG with batch norms. Then the memory of processes that divide a large
// perceptron. Contenders take turns.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/timeline.h"
#include "lockstep/comm/connect.h"
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
constexpr int64_t kWide = 1024;

// Eight layers of the same size, so that there is an even cut.
torch::nn::Sequential make_mlp(int64_t width) {
  torch::nn::Sequential layers;
  for (int layer = 0; layer < 8; ++layer) {
    layers->push_back(torch::nn::Linear(width, width));
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

template <class Network>
double bytes_of(const Network& network) {
  double bytes = 0;
  for (const auto& parameter : network.parameters()) bytes += static_cast<double>(parameter.nbytes());
  return bytes;
}

// Memory that is in RAM now, in MiB.
double resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0; word == "VmRSS:" && status >> kib) return kib / 1024;
  return 0;
}

// Reads numbers of steps and makes them. Answers with the seconds of a step, and the memory that the training has
// brought with it, of the process with most.
template <class Network>
void serve(const Network& made, const torch::Tensor& examples, const parallel::TeamOptions& options,
           const parallel::Rule& rule = parallel::Sgd{.lr = 0.001}) {
  const auto labels = torch::randint(10, {examples.size(0)});
  const double before_training = resident_mib() - bytes_of(*made) / (1 << 20);
  const auto team = parallel::Team::create(options);
  int steps = 0;
  team.run([&](parallel::Replica& me) {
    auto net = me.share(made);
    auto optimizer = me.optimizer(rule);
    const auto inputs = me.share_of(examples).clone(), targets = me.share_of(labels).clone();
    const bool first_here = me.number() == team.block().begin;
    for (;;) {
      if (first_here && !(std::cin >> steps)) steps = 0;
      me.barrier();
      const int count = steps;
      me.barrier();  // everybody has read it
      if (count == 0) return;
      const auto start = Clock::now();
      for (int step = 0; step < count; ++step)
        me.step(torch::nn::functional::cross_entropy(net->forward(inputs), targets), optimizer);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      me.barrier();
      if (!first_here) continue;
      const auto most = torch::tensor({resident_mib() - before_training}, torch::kDouble);
      if (options.group.size() > 1) options.group.all_reduce(most, ReduceOp::max).wait();
      if (me.number() != 0) continue;
      std::cout << seconds / count << " " << most.item<double>() << "\n" << std::flush;
    }
  });
}

void serve(const std::vector<std::string>& words) {
  const parallel::TeamOptions options{.replicas = kReplicas,
                                      .devices = words.at(1),
                                      .group = comm::connect(),
                                      .slices = std::stoll(words.at(3)),
                                      .split = parallel::parse_split(words.at(2))};
  tune_allocator();
  pin_numerics();
  torch::manual_seed(0);
  if (words.at(0) == "mlp") return serve(make_mlp(1024), torch::randn({1024, 1024}), options);
  if (words.at(0) == "wide") return serve(make_mlp(kWide), torch::randn({64, kWide}), options, parallel::AdamW{});
  const torch::nn::Sequential made = make_vgg();
  norm::convert_sync_batchnorm(made, norm::BatchNormMode::ghost);
  serve(made, torch::randn({128, 3, 32, 32}), options);
}

struct Contender {
  const char *name, *devices, *split;
  int slices = 1, processes = 1;
};

std::vector<std::string> commands_of(const Contender& one, const std::string& network, const char* torch_cut) {
  if (one.devices != nullptr)
    return serve_commands(one.processes, text(network, " ", one.devices, " ", one.split, " ", one.slices));
  std::vector<std::string> out;
  const int port = free_port();
  for (int rank = 0; rank < one.processes; ++rank)
    out.push_back(text("'" LOCKSTEP_PYTHON "' '" LOCKSTEP_PEERS "/pipeline_peer.py' ", network, " ", rank, " ",
                       one.processes, " ", port, " ", torch_cut));
  return out;
}

void compare(const std::string& network, int steps, int rounds, const std::vector<Contender>& contenders,
             const char* torch_cut, nlohmann::json& results) {
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<std::function<double()>> runs;
  for (const Contender& one : contenders) {
    peers.push_back(std::make_unique<Peer>(commands_of(one, network, torch_cut)));
    runs.push_back([peer = peers.back().get(), steps] { return peer->run(steps); });
  }
  const auto seconds = interleave(rounds, runs);
  std::printf("%s, %ld replicas\n", network.c_str(), static_cast<long>(kReplicas));
  for (size_t c = 0; c < peers.size(); ++c) {
    const double speedup = ratio(seconds[0], seconds[c]);
    std::printf("  %-36s %8.2f ms a step, x%.2f", contenders[c].name, 1e3 * median(seconds[c]), speedup);
    nlohmann::json row{{"network", network},
                       {"contender", contenders[c].name},
                       {"ms_per_step", 1e3 * median(seconds[c])},
                       {"speedup", speedup}};
    if (const auto& answer = peers[c]->answer(); answer.size() > 1) {
      std::printf("; %5.0f MiB more in the process with most", answer.at(1));
      row["mib"] = answer.at(1);
    }
    std::printf("\n");
    results.push_back(row);
  }
  std::fflush(stdout);
}

nlohmann::json measure(const Arguments& arguments) {
  const std::string only = arguments.text("--only", "");
  if (!only.empty() && only != "mlp" && only != "vgg" && only != "wide")
    throw UsageError("--only is '" + only + "', expected mlp, vgg or wide");
  const int rounds = static_cast<int>(arguments.number("--rounds", 9));
  const std::vector<Contender> all{{"1 thread", "cpu:1", "data"},
                                   {"1 thread, S = 4", "cpu:1", "data", 4},
                                   {"2 threads, data", "cpu:2", "data"},
                                   {"2 threads, p2", "cpu:2", "p2"},
                                   {"2 threads, t2, S = 4", "cpu:2", "t2", 4},
                                   {"2 processes, data", "cpu:1", "data", 1, 2},
                                   {"2 processes, p2", "cpu:1", "p2", 1, 2},
                                   {"2 processes, PyTorch's Schedule1F1B", nullptr, "", 1, 2}};
  const std::vector<Contender> large{{"1 process", "cpu:1", "data"},
                                     {"2 processes, data", "cpu:1", "data", 1, 2},
                                     {"2 processes, p2", "cpu:1", "p2", 1, 2},
                                     {"4 processes, p4", "cpu:1", "p4", 1, 4}};
  nlohmann::json results = nlohmann::json::array();
  // PyTorch is cut where Lockstep is in most runs.
  if (only.empty() || only == "mlp") compare("mlp", 4, rounds, all, "8", results);
  if (only.empty() || only == "vgg") compare("vgg", 2, rounds, all, "8", results);
  if (only.empty() || only == "wide") compare("wide", 1, 3, large, "", results);
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "A step on two threads or processes that divide the batch or the network.",
                      .measure = measure,
                      .options = {{"--only", "NETWORK", "mlp, vgg, or wide, which is for the memory"},
                                  {"--rounds", "N", "rounds of mlp and vgg; 9"}},
                      .serve = serve});
}
