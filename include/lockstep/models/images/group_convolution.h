// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "lockstep/models/images/symmetry.h"

/// Convolutions over a group of turns and mirror images (Cohen and Welling, "Group equivariant convolutional networks",
/// 2016). With G = order(symmetry), a feature map is [N, G * C, H, W], channel g * C + c being feature c at element g.
/// Moving the input of a layer by an element moves its output as move_features does.
///
/// A layer is one dense convolution: its filter bank is put together from the learned filters by picking elements in a
/// fixed order. So forward and backward are libtorch's fast convolutions, and deterministic wherever these are: in
/// the backward pass the G copies of a weight are added up in the order of the elements, without atomics.
namespace lockstep::models {

/// weight [out, in, K, K] -> the filters [G * out, in, K, K]: filter g * out + o is filter o moved by element g.
/// Differentiable, twice too. Throws Error where the filters are not square.
at::Tensor lifting_filters(const at::Tensor& weight, Symmetry symmetry);

/// weight [out, in, G, K, K] -> the filters [G * out, G * in, K, K]: output g reads input h with the filter of element
/// g^-1 h, moved by g. Differentiable, twice too. Throws Error where the filters are not square or G is another.
at::Tensor group_filters(const at::Tensor& weight, Symmetry symmetry);

/// features [N, G * C, H, W] -> [N, C, H, W]: the largest over the elements. Moving the input then moves the output
/// as an image. Of equal values each gets its part of the gradient.
at::Tensor group_pool(const at::Tensor& features, Symmetry symmetry);

/// x [N, in, H, W] -> [N, G * out, H, W], stride 1, zeros around: from an image to a feature map. No bias.
class LiftingConv2dImpl : public torch::nn::Cloneable<LiftingConv2dImpl> {
 public:
  /// Throws Error where a number is below 1 or the kernel is even.
  LiftingConv2dImpl(Symmetry symmetry, int64_t in, int64_t out, int64_t kernel);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  Symmetry symmetry;
  int64_t in, out, kernel;
  at::Tensor weight;  ///< [out, in, kernel, kernel]
};
TORCH_MODULE(LiftingConv2d);

/// x [N, G * in, H, W] -> [N, G * out, H, W], stride 1, zeros around. No bias.
class GroupConv2dImpl : public torch::nn::Cloneable<GroupConv2dImpl> {
 public:
  /// Throws Error where a number is below 1 or the kernel is even.
  GroupConv2dImpl(Symmetry symmetry, int64_t in, int64_t out, int64_t kernel);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  Symmetry symmetry;
  int64_t in, out, kernel;
  at::Tensor weight;  ///< [out, in, G, kernel, kernel]
};
TORCH_MODULE(GroupConv2d);

/// x [N, G * C, H, W] -> the same sizes: a batch norm `norm` of C features over all elements, positions and examples.
/// A batch norm of G * C channels would tell the elements apart.
class GroupBatchNorm2dImpl : public torch::nn::Cloneable<GroupBatchNorm2dImpl> {
 public:
  GroupBatchNorm2dImpl(Symmetry symmetry, int64_t features);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  Symmetry symmetry;
  int64_t features;
  torch::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(GroupBatchNorm2d);

}  // namespace lockstep::models
