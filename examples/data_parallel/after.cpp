// SPDX-License-Identifier: Apache-2.0
// The training of before.cpp with a team: docs/from/data_parallel.md.
//     data_parallel cpu:2                      devices
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdio>

#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    hidden = register_module("hidden", torch::nn::Linear(2, 32));
    out = register_module("out", torch::nn::Linear(32, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

void train(const char* devices) {
  const auto x = torch::linspace(-1, 1, 60).view({30, 2}), y = x.prod(1, /*keepdim=*/true);  // learn a product
  const auto team = lockstep::parallel::Team::create({.replicas = 4, .devices = devices});
  team.run([&](lockstep::parallel::Replica& me) {
    auto net = me.share(Net());
    auto optimizer = me.optimizer(lockstep::parallel::Sgd{.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 200; ++step) {
      const auto inputs = me.share_of(x), targets = me.share_of(y);  // this replica's rows, on its device
      const auto loss = torch::mse_loss(net->forward(inputs), targets);
      const auto done = me.step(loss, optimizer, static_cast<double>(inputs.size(0)));
      if (step == 199 && me.number() == 0) std::printf("loss at step 200: %.6f\n", done.loss);
    }
  });
}

int main(int argc, char** argv) {
  lockstep::pin_numerics();
  train(argc > 1 ? argv[1] : "cpu");
}
