// SPDX-License-Identifier: Apache-2.0
// What audits cost: the same steps with and without, of teams that stay and take turns.
#include <torch/nn/functional/loss.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "parallel/networks.h"
#include "support/interleave.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kReplicas = 8;
constexpr const char* kDevices = "cpu:2";

// The seconds of a step. `made` is cloned by the team.
template <class Network>
double seconds_of(int64_t audit, const Network& made, const torch::Tensor& images, int64_t steps) {
  const auto labels = torch::arange(images.size(0)).remainder(10);
  const auto team = parallel::Team::create({.replicas = kReplicas, .devices = kDevices, .audit = audit});
  double seconds = 0;
  team.run([&](parallel::Replica& me) {
    auto net = me.share(made);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.01});
    const auto loss_of = [&](int64_t replica, int64_t) {
      const auto mine = Placement::even(images.size(0), kReplicas).block(replica);
      return torch::nn::functional::cross_entropy(net->forward(images.narrow(0, mine.begin, mine.size())),
                                                  labels.narrow(0, mine.begin, mine.size()));
    };
    me.audit_with(loss_of);
    for (int step = 0; step < 2; ++step) me.step(loss_of(me.number(), 0), optimizer);
    me.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < steps; ++step) me.step(loss_of(me.number(), 0), optimizer);
    if (me.number() == 0) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  return seconds / static_cast<double>(steps);
}

template <class Network>
void compare(const char* name, const Network& made, const torch::Tensor& images, int64_t steps, int rounds,
             nlohmann::json& results) {
  std::vector<int64_t> audits{0, 16, 4, 1};
  std::vector<std::function<double()>> runs;
  for (const int64_t audit : audits) runs.push_back([&, audit] { return seconds_of(audit, made, images, steps); });
  const auto seconds = interleave(rounds, runs);
  std::printf("%s, batch %ld, %ld replicas on %s\n", name, static_cast<long>(images.size(0)),
              static_cast<long>(kReplicas), kDevices);
  for (size_t c = 0; c < audits.size(); ++c) {
    const double times = ratio(seconds[c], seconds[0]);
    const std::string what = audits[c] == 0 ? "no audit" : text("one replica every ", audits[c], " steps");
    std::printf("  %-28s %8.2f ms a step, %+5.1f %%\n", what.c_str(), 1e3 * median(seconds[c]), 100 * (times - 1));
    results.push_back({{"network", name},
                       {"batch", images.size(0)},
                       {"replicas", kReplicas},
                       {"devices", kDevices},
                       {"audit", audits[c]},
                       {"ms_per_step", 1e3 * median(seconds[c])},
                       {"times_none", times}});
  }
}

nlohmann::json measure(const Arguments& arguments) {
  tune_allocator();
  pin_numerics();
  torch::manual_seed(0);
  const auto rounds = static_cast<int>(arguments.number("--rounds", 9));
  nlohmann::json results = nlohmann::json::array();
  compare("lenet", LeNet(), torch::randn({256, 1, 28, 28}), 64, rounds, results);
  const ResNet18 resnet;
  norm::convert_sync_batchnorm(resnet);
  compare("resnet18, synchronised batch norms", resnet, torch::randn({32, 3, 64, 64}), 16, rounds, results);
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run_program(argc, argv,
                                      {.measures = "Times training steps with and without audits of gradients.",
                                       .measure = lockstep::bench::measure,
                                       .options = {{"--rounds", "N", "of all in turn; default 9"}}});
}
