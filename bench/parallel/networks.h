// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

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

struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  BlockImpl(int64_t before, int64_t after, int64_t stride) : before(before), after(after), stride(stride) { reset(); }
  void reset() override {
    const auto conv = [](int64_t from, int64_t to, int64_t size, int64_t step) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, size).stride(step).padding(size / 2).bias(false));
    };
    conv1 = register_module("conv1", conv(before, after, 3, stride));
    bn1 = register_module("bn1", torch::nn::BatchNorm2d(after));
    conv2 = register_module("conv2", conv(after, after, 3, 1));
    bn2 = register_module("bn2", torch::nn::BatchNorm2d(after));
    if (stride != 1 || before != after)
      downsample = register_module(
          "downsample", torch::nn::Sequential(conv(before, after, 1, stride), torch::nn::BatchNorm2d(after)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(y + (downsample.is_empty() ? x : downsample->forward(x)));
  }
  int64_t before, after, stride;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  torch::nn::Sequential downsample{nullptr};
};
TORCH_MODULE(Block);

/// torchvision's ResNet-18 with ten classes.
struct ResNet18Impl : torch::nn::Cloneable<ResNet18Impl> {
  ResNet18Impl() { reset(); }
  void reset() override {
    layers = register_module("layers", torch::nn::Sequential());
    layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)));
    layers->push_back(torch::nn::BatchNorm2d(64));
    layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
    int64_t before = 64;
    for (const int64_t after : {64, 128, 256, 512})
      for (int number = 0; number < 2; ++number) {
        layers->push_back(Block(before, after, number == 0 && after > 64 ? 2 : 1));
        before = after;
      }
    fc = register_module("fc", torch::nn::Linear(512, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc(layers->forward(x).mean({2, 3})); }
  torch::nn::Sequential layers{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(ResNet18);

}  // namespace lockstep::bench
