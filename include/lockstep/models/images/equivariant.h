// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/context/stages.h"
#include "lockstep/models/images/group_convolution.h"

namespace lockstep::models {

struct EquivariantOptions {
  Symmetry symmetry = Symmetry::c4;
  int64_t channels = 1;
  int64_t size = 28;  ///< height and width of an image
  int64_t classes = 10;
  int64_t features = 8;  ///< of the first stage; the second and third have 2 and 4 times as many, each at G elements
};

/// A convolutional network whose logits stay the same when an image is turned by 90 degrees (c4), or turned and
/// mirrored (d4), to rounding: a lifting convolution, five group convolutions of 3x3 with batch norm and ReLU in three
/// stages, pooled by 2 between them, then the largest over the group, the mean over positions and a dense layer.
/// forward(x [N, channels, size, size]) -> [N, classes]; N may be 0.
class EquivariantImpl : public torch::nn::Cloneable<EquivariantImpl>, public Staged {
 public:
  /// Throws Error where a number is below 1 or the size is no multiple of 4: windows of pooling must fit, or they would
  /// lie elsewhere on a turned image.
  explicit EquivariantImpl(const EquivariantOptions& options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  std::vector<Stage> stages() override;
  /// The feature map before the group is pooled: [N, G * 4 * features, size / 4, size / 4].
  at::Tensor feature_map(at::Tensor x);

  EquivariantOptions options;
  LiftingConv2d lifting{nullptr};
  std::array<GroupConv2d, 5> convolutions{nullptr, nullptr, nullptr, nullptr, nullptr};
  std::array<GroupBatchNorm2d, 6> norms{nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  torch::nn::Linear fc{nullptr};

 private:
  at::Tensor layer(size_t number, const at::Tensor& x);
};
TORCH_MODULE(Equivariant);

}  // namespace lockstep::models
