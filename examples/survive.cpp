// SPDX-License-Identifier: Apache-2.0
// A loop of one's own that goes on when one of its processes is lost, and ends in the same weights:
//   lockstep run -n 3 --survive --respawn -- ./survive [STEPS]
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/survive.h"
#include "lockstep/run/weights.h"
using namespace lockstep;

int main(int argc, char** argv) {
  pin_numerics();
  tune_allocator();
  const int64_t steps = argc > 1 ? std::stoi(argv[1]) : 300;
  parallel::run_surviving({.replicas = 6, .devices = "cpu:1"}, [&](parallel::Replica& me) {
    namespace nn = torch::nn;
    auto net = me.share(
        nn::Sequential(nn::Linear(64, 32), nn::BatchNorm1d(32), nn::ReLU(), nn::Dropout(0.2), nn::Linear(32, 4)));
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
    const auto seen = torch::zeros({1}, torch::kDouble);  // this replica's, and kept with the rest
    for (me.keep(optimizer, {seen}); me.steps() < steps; me.keep(optimizer, {seen})) {
      const RandomKey key = RandomKey{7}.fold(static_cast<uint64_t>(me.steps()));
      const auto x = me.share_of(normal_(torch::empty({48, 64}), key));
      const auto y = (x.mean(1) * 100).floor().remainder(4).to(torch::kLong);
      seen.add_(x.size(0));
      const auto result =
          me.step(nn::functional::cross_entropy(net->forward(x), y), optimizer, static_cast<double>(x.size(0)));
      if (me.number() == 0 && me.steps() % 25 == 0) {
        std::printf("step %ld: loss %.4f\n", static_cast<long>(me.steps()), result.loss);
        std::fflush(stdout);
      }
    }
    const double examples = me.sum(seen).item<double>();
    const auto weights = me.state_dict(*net);
    if (me.number() == 0) std::printf("%.0f examples, weights %s\n", examples, run::hash_of(weights).c_str());
  });
}
