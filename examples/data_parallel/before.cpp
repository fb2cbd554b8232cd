// SPDX-License-Identifier: Apache-2.0
// A training with libtorch's data_parallel, which takes GPUs alone: docs/from/data_parallel.md.
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/parallel/data_parallel.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <vector>

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

void train(const std::vector<torch::Device>& devices) {
  const auto x = torch::linspace(-1, 1, 60).view({30, 2}), y = x.prod(1, /*keepdim=*/true);  // learn a product
  Net net;
  net->to(devices[0]);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 200; ++step) {
    const auto output = torch::nn::parallel::data_parallel(net, x, devices);  // [30, 1] on devices[0]
    const auto loss = torch::mse_loss(output, y.to(devices[0]));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step == 199) std::printf("loss at step 200: %.6f\n", loss.item<double>());
  }
}
