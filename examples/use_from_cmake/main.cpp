// SPDX-License-Identifier: Apache-2.0
// A network of one's own, trained by eight replicas. Run it alone or as `lockstep run -n 2 -- ./use_lockstep`: threads
// and processes print the same digits.
#include <torch/nn.h>

#include <cstdio>

#include "lockstep/comm/connect.h"
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

int main() {
  lockstep::pin_numerics();
  const auto group = lockstep::comm::connect();
  const auto team = lockstep::parallel::Team::create({.replicas = 8, .group = group});
  team.run([](lockstep::parallel::Replica& me) {
    const auto x = torch::linspace(-1, 1, 60).view({30, 2}), y = x.prod(1, /*keepdim=*/true);  // learn a product
    auto net = me.share(Net());
    auto optimizer = me.optimizer(lockstep::parallel::Adam{.lr = 0.02});
    double loss = 0;
    for (int step = 0; step < 200; ++step) {
      const auto inputs = me.share_of(x), targets = me.share_of(y);  // the batch, cut into eight shares
      loss = me.step(torch::mse_loss(net->forward(inputs), targets), optimizer, inputs.size(0)).loss;
    }
    if (me.number() == 0) std::printf("loss after 200 steps: %.8f\n", loss);
  });
  group.finish();
}
