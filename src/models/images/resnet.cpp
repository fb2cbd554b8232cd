// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/resnet.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/enum.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/context/sequential_stages.h"

namespace lockstep::models {
namespace {

// The norm behind it has the bias.
torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  return layer;
}

torch::nn::Sequential shortcut(int64_t in, int64_t out, int64_t stride) {
  return torch::nn::Sequential(convolution(in, out, 1, stride), torch::nn::BatchNorm2d(out));
}

at::Tensor add(const at::Tensor& y, const at::Tensor& x, torch::nn::Sequential& downsample) {
  return at::relu(y + (downsample.is_empty() ? x : downsample->forward(x)));
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(int64_t in, int64_t out, int64_t stride) : in(in), out(out), stride(stride) {
  BasicBlockImpl::reset();
}

void BasicBlockImpl::reset() {
  conv1 = register_module("conv1", convolution(in, out, 3, stride));
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(out));
  conv2 = register_module("conv2", convolution(out, out, 3, 1));
  bn2 = register_module("bn2", torch::nn::BatchNorm2d(out));
  if (stride != 1 || in != out) downsample = register_module("downsample", shortcut(in, out, stride));
}

at::Tensor BasicBlockImpl::forward(const at::Tensor& x) {
  return add(bn2(conv2(at::relu(bn1(conv1(x))))), x, downsample);
}

BottleneckImpl::BottleneckImpl(int64_t in, int64_t out, int64_t stride) : in(in), out(out), stride(stride) {
  BottleneckImpl::reset();
}

void BottleneckImpl::reset() {
  const int64_t inner = std::max<int64_t>(1, out / 4);
  conv1 = register_module("conv1", convolution(in, inner, 1, 1));
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(inner));
  conv2 = register_module("conv2", convolution(inner, inner, 3, stride));
  bn2 = register_module("bn2", torch::nn::BatchNorm2d(inner));
  conv3 = register_module("conv3", convolution(inner, out, 1, 1));
  bn3 = register_module("bn3", torch::nn::BatchNorm2d(out));
  if (stride != 1 || in != out) downsample = register_module("downsample", shortcut(in, out, stride));
}

at::Tensor BottleneckImpl::forward(const at::Tensor& x) {
  const auto y = at::relu(bn2(conv2(at::relu(bn1(conv1(x))))));
  return add(bn3(conv3(y)), x, downsample);
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options(options) {
  require(options.channels > 0 && options.classes > 0 && options.width > 0, "ResNet", "there are ", options.channels,
          " channels, ", options.classes, " classes and a width of ", options.width, ", expected at least 1 of each");
  require(std::ranges::min(options.blocks) > 0, "ResNet", "a layer has ", std::ranges::min(options.blocks),
          " blocks, expected at least 1");
  ResNetImpl::reset();
}

void ResNetImpl::reset() {
  torch::nn::Conv2d stem = options.small_images ? convolution(options.channels, options.width, 3, 1)
                                                : convolution(options.channels, options.width, 7, 2);
  conv1 = register_module("conv1", stem);
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(options.width));
  int64_t in = options.width;
  for (size_t l = 0; l < layers.size(); ++l) {
    layers[l] = register_module("layer" + std::to_string(l + 1), torch::nn::Sequential());
    const int64_t out = (options.bottleneck ? 4 : 1) * (options.width << l);
    for (int64_t block = 0; block < options.blocks[l]; ++block) {
      const int64_t stride = block == 0 && l > 0 ? 2 : 1;
      if (options.bottleneck)
        layers[l]->push_back(Bottleneck(in, out, stride));
      else
        layers[l]->push_back(BasicBlock(in, out, stride));
      in = out;
    }
  }
  fc = register_module("fc", torch::nn::Linear(in, options.classes));
}

std::vector<Stage> ResNetImpl::stages() {
  std::vector<Stage> stages;
  stages.emplace_back("conv1", [this](const at::Tensor& x) {
    const at::Tensor y = at::relu(bn1(conv1(x)));
    return options.small_images ? y : at::max_pool2d(y, 3, 2, 1);
  });
  for (size_t l = 0; l < layers.size(); ++l)
    for (Stage& block : stages_of(*layers[l], "layer" + std::to_string(l + 1) + "."))
      stages.push_back(std::move(block));
  stages.emplace_back("fc", [this](const at::Tensor& x) { return fc(x.mean({2, 3})); });
  return stages;
}

at::Tensor ResNetImpl::forward(const at::Tensor& x) {
  return fold<at::Tensor>(stages(), x);
}

}  // namespace lockstep::models
