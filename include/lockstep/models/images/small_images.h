// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/context/stages.h"

/// AlexNet and VGG for images of 16x16 to 64x64 or so: their plan, with smaller kernels, fewer poolings and narrower
/// dense layers. All windows of pooling are apart from each other, so that their backward pass adds nothing up.
namespace lockstep::models {

struct SmallImageOptions {
  int64_t channels = 3;
  int64_t height = 32;
  int64_t width = 32;
  int64_t classes = 10;
  double scale = 1;      ///< multiplies the number of channels and units of every layer
  double dropout = 0.5;  ///< in the dense part
};

/// Five convolutions in `features`, three poolings, then `classifier`: dropout, 512, dropout, 512, classes.
/// forward(x [N, channels, height, width]) -> [N, classes]; N may be 0.
class AlexNetImpl : public torch::nn::Cloneable<AlexNetImpl>, public Staged {
 public:
  /// Throws Error where the images are smaller than 8x8, the scale is not above 0 or the dropout not in [0, 1).
  explicit AlexNetImpl(const SmallImageOptions& options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  std::vector<Stage> stages() override;

  SmallImageOptions options;
  torch::nn::Sequential features{nullptr}, classifier{nullptr};
};
TORCH_MODULE(AlexNet);

/// Six convolutions of 3x3 with batch norm (64; 128; 256 twice; 512 twice), each stage pooled by 2, then `classifier`:
/// 512, dropout, classes. forward(x [N, channels, height, width]) -> [N, classes]; N may be 0.
class VggImpl : public torch::nn::Cloneable<VggImpl>, public Staged {
 public:
  /// Throws Error where the images are smaller than 16x16, the scale is not above 0 or the dropout not in [0, 1).
  explicit VggImpl(const SmallImageOptions& options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  std::vector<Stage> stages() override;

  SmallImageOptions options;
  torch::nn::Sequential features{nullptr}, classifier{nullptr};
};
TORCH_MODULE(Vgg);

}  // namespace lockstep::models
