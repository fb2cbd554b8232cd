// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "lockstep/dense/convolution.h"

namespace lockstep::dense {

/// avg_pool2d(relu(conv2d(x, weight, bias, options)), window), with the same bits and gradients of any order.
///
/// On a replica's thread, where the layer's kernels are in charge, it is one pass image by image: what lies between the
/// three stays in cache, and points that no window covers (the last line and column of LeNet's second layer) are not
/// computed, forwards or backwards. Elsewhere it is the three operations.
at::Tensor convolve_relu_pool(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              std::array<int64_t, 2> window = {2, 2}, const ConvolutionOptions& options = {});

}  // namespace lockstep::dense
