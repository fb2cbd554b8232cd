// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

/// Convolutions of images on one CPU thread: products of matrices that read channels-last images where they lie, where
/// libtorch reorders them first. Small images with few channels, as in LeNet, gain most (docs/inside/performance.md).
/// Each sum is made in one order, whatever the alignment and the number of threads around.
namespace lockstep::dense {

struct ConvolutionOptions {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};
};

/// x [N, C, H, W], weight [K, C, kernel_h, kernel_w], bias [K] or undefined: [N, K, out_h, out_w], channels-last.
/// float32 or float64. N may be 0. Throws Error for other shapes, types and devices.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionOptions& options = {});

/// The gradients of x, weight and bias that `wanted` asks for, the others undefined; those of images and weights are
/// channels-last.
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                    const at::Tensor& weight,
                                                                    const ConvolutionOptions& options,
                                                                    std::array<bool, 3> wanted);

}  // namespace lockstep::dense
