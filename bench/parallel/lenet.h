// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

namespace lockstep::bench {

/// The network of Dive into Deep Learning 12.5.
struct LeNetImpl : torch::nn::Cloneable<LeNetImpl> {
  LeNetImpl() { reset(); }
  void reset() override {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 20, 3));
    conv2 = register_module("conv2", torch::nn::Conv2d(20, 50, 5));
    fc1 = register_module("fc1", torch::nn::Linear(800, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::avg_pool2d(torch::relu(conv1(x)), 2);
    x = torch::avg_pool2d(torch::relu(conv2(x)), 2);
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(LeNet);

}  // namespace lockstep::bench
