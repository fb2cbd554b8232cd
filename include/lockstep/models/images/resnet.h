// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/context/stages.h"

/// Residual networks (He et al. 2015), with the names, the order and the shapes of torchvision's, so that its weights
/// load: `layer1.0.conv1.weight`, `layer2.0.downsample.1.running_mean`, `fc.bias`. As there, the stride of a bottleneck
/// lies on its 3x3 convolution, and weights of convolutions begin as normal(0, sqrt(2 / fan out)).
namespace lockstep::models {

/// Two convolutions of 3x3. forward(x [N, in, H, W]) -> [N, out, ceil(H / stride), ceil(W / stride)].
class BasicBlockImpl : public torch::nn::Cloneable<BasicBlockImpl> {
 public:
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  int64_t in, out, stride;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  torch::nn::Sequential downsample{nullptr};
};
TORCH_MODULE(BasicBlock);

/// Convolutions of 1x1 to out / 4, 3x3, and 1x1 to out. Sizes as BasicBlock.
class BottleneckImpl : public torch::nn::Cloneable<BottleneckImpl> {
 public:
  BottleneckImpl(int64_t in, int64_t out, int64_t stride);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  int64_t in, out, stride;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  torch::nn::Sequential downsample{nullptr};
};
TORCH_MODULE(Bottleneck);

struct ResNetOptions {
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};  ///< in layer1 to layer4
  bool bottleneck = false;
  int64_t channels = 3;
  int64_t classes = 1000;
  int64_t width =
      64;  ///< channels of the stem; layer1 to layer4 have 1, 2, 4 and 8 times as many (bottlenecks 4 times that)
  /// For CIFAR and the like: a stem of 3x3 without a stride or max pooling in place of 7x7 with both.
  bool small_images = false;

  static ResNetOptions resnet18() { return {}; }
  static ResNetOptions resnet34() { return {.blocks = {3, 4, 6, 3}}; }
  static ResNetOptions resnet50() { return {.blocks = {3, 4, 6, 3}, .bottleneck = true}; }
};

/// forward(x [N, channels, H, W]) -> [N, classes]; any size, N may be 0.
class ResNetImpl : public torch::nn::Cloneable<ResNetImpl>, public Staged {
 public:
  /// Throws Error where a number is below 1.
  explicit ResNetImpl(const ResNetOptions& options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  /// Each block is one.
  std::vector<Stage> stages() override;

  ResNetOptions options;
  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  std::array<torch::nn::Sequential, 4> layers{nullptr, nullptr, nullptr, nullptr};  ///< layer1 to layer4
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace lockstep::models
