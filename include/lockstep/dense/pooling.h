// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

/// Average pooling of channels-last images on one CPU thread.
namespace lockstep::dense {

struct PoolingOptions {
  std::array<int64_t, 2> kernel = {2, 2};
  std::array<int64_t, 2> stride = {2, 2};
};

/// x [N, C, H, W]: the means over windows, [N, C, (H - kernel) / stride + 1, ...], channels-last. float32 or float64; N
/// may be 0. Throws Error for other shapes, types and devices.
at::Tensor average_pooling(const at::Tensor& x, const PoolingOptions& options = {});

/// The gradient of an image of `sizes`, channels-last.
at::Tensor average_pooling_backward(const at::Tensor& gradient, at::IntArrayRef sizes,
                                    const PoolingOptions& options = {});

}  // namespace lockstep::dense
