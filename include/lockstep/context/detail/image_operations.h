// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <tuple>

namespace lockstep {

/// Kernels that a layer above offers in place of libtorch's. Each takes what libtorch's operation of its name takes,
/// and returns nothing where libtorch is to compute it. They are used on threads whose Context names them.
struct ImageOperations {
  std::optional<at::Tensor> (*convolution)(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                           c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                           c10::SymIntArrayRef dilation, bool transposed, const c10::SymInt& groups);
  std::optional<std::tuple<at::Tensor, at::Tensor, at::Tensor>> (*convolution_backward)(
      const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight, c10::SymIntArrayRef stride,
      c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, const c10::SymInt& groups,
      std::array<bool, 3> wanted);
  std::optional<at::Tensor> (*avg_pool2d)(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                                          at::IntArrayRef padding, bool ceil_mode, std::optional<int64_t> divisor);
  std::optional<at::Tensor> (*avg_pool2d_backward)(const at::Tensor& gradient, const at::Tensor& x,
                                                   at::IntArrayRef kernel, at::IntArrayRef stride,
                                                   at::IntArrayRef padding, bool ceil_mode,
                                                   std::optional<int64_t> divisor);
};

}  // namespace lockstep
