// SPDX-License-Identifier: Apache-2.0
// A program of the C++ library with one fault, for the doctor's tests: native VARIANT
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "lockstep/comm/connect.h"
#include "lockstep/comm/group.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
using namespace lockstep;

int main(int argc, char** argv) {
  const std::string variant = argc > 1 ? argv[1] : "healthy";
  pin_numerics();
  const auto group = comm::connect();
  const auto team = parallel::Team::create({.replicas = 4, .group = group});
  team.run([&](parallel::Replica& me) {
    auto net = me.share(torch::nn::Linear(4, 1));
    auto optimizer = me.optimizer(parallel::Adam{.lr = 0.01});
    const auto x = torch::linspace(-1, 1, 96).view({24, 4});
    auto y = x.sum(1, /*keepdim=*/true);
    if (variant == "counts-ranks") y = y + group.size();  // what is learned depends on the number of processes
    double loss = 0;
    for (int step = 0; step < 12; ++step) {
      if (variant == "slower" && group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      if (variant == "writes" && step == 5 && me.number() == 3) {
        const torch::NoGradGuard off;
        net->bias.add_(0.5);
      }
      const auto inputs = me.share_of(x), wanted = me.share_of(y);
      loss = me.step(torch::mse_loss(net->forward(inputs), wanted), optimizer, inputs.size(0)).loss;
      if (variant == "writes") me.watch_divergence(optimizer, 1);
    }
    if (me.number() == 0) std::printf("loss %.8f\n", loss);
  });
  if (variant == "calls" && group.size() > 1) {
    auto mine = torch::ones({group.rank() == 0 ? 2 : 3});
    group.all_reduce(mine).wait();
  }
  group.finish();
}
