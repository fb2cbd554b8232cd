// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/convolution.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "dense/geometry.h"
#include "lockstep/base/error.h"

namespace lockstep::dense {
Geometry geometry_of(const at::Tensor& x, const at::Tensor& weight, const ConvolutionOptions& options) {
  constexpr const char* operation = "dense::convolution";
  require(x.dim() == 4 && weight.dim() == 4 && x.size(1) == weight.size(1) && weight.numel() > 0, operation, "x is ",
          x.sizes(), " and the weight ", weight.sizes(), ", expected [N, C, H, W] and [K, C, kernel_h, kernel_w]");
  require(x.is_cpu() && weight.is_cpu() && x.scalar_type() == weight.scalar_type() &&
              (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
          operation, "x is ", x.scalar_type(), " on ", x.device(), " and the weight ", weight.scalar_type(), " on ",
          weight.device(), ", expected both float32 or both float64 on the CPU");
  const auto [stride, padding] = options;
  require(stride[0] > 0 && stride[1] > 0 && padding[0] >= 0 && padding[1] >= 0, operation, "stride is ", stride[0],
          " x ", stride[1], " and padding ", padding[0], " x ", padding[1], ", expected at least 1 and at least 0");
  Geometry g{x.size(0),
             x.size(2),
             x.size(3),
             x.size(1),
             weight.size(0),
             weight.size(2),
             weight.size(3),
             stride[0],
             stride[1],
             padding[0],
             padding[1],
             0,
             0};
  require(g.full_height() >= g.kernel_height && g.full_width() >= g.kernel_width, operation, "the image is ",
          g.full_height(), " x ", g.full_width(), " with its padding, expected at least the kernel's ", g.kernel_height,
          " x ", g.kernel_width);
  g.out_height = (g.full_height() - g.kernel_height) / g.stride_height + 1;
  g.out_width = (g.full_width() - g.kernel_width) / g.stride_width + 1;
  return g;
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionOptions& options) {
  const Geometry g = geometry_of(x, weight, options);
  require(!bias.defined() || (bias.dim() == 1 && bias.size(0) == g.filters && bias.dtype() == x.dtype()),
          "dense::convolution", "the bias is ", bias.defined() ? bias.sizes() : at::IntArrayRef{}, ", expected [",
          g.filters, "] of x's type");
  const at::Tensor y = empty_image(x, {g.images, g.filters, g.out_height, g.out_width});
  cpu::convolution(g, channels_last(x), channels_last(weight), bias.defined() ? bias.contiguous() : bias, y);
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                    const at::Tensor& weight,
                                                                    const ConvolutionOptions& options,
                                                                    std::array<bool, 3> wanted) {
  const Geometry g = geometry_of(x, weight, options);
  require(gradient.sizes() == at::IntArrayRef({g.images, g.filters, g.out_height, g.out_width}) &&
              gradient.dtype() == x.dtype(),
          "dense::convolution_backward", "the gradient is ", gradient.scalar_type(), gradient.sizes(), ", expected ",
          x.scalar_type(), "[", g.images, ", ", g.filters, ", ", g.out_height, ", ", g.out_width, "]");
  const at::Tensor given = channels_last(gradient);
  at::Tensor x_gradient, weight_gradient, bias_gradient;
  if (wanted[0]) {
    x_gradient = empty_image(x, x.sizes());
    cpu::input_gradient(g, given, channels_last(weight), x_gradient);
  }
  if (wanted[1]) weight_gradient = empty_image(weight, weight.sizes());
  if (wanted[2]) bias_gradient = at::empty({g.filters}, x.options());
  if (wanted[1] || wanted[2]) cpu::weight_gradient(g, given, channels_last(x), weight_gradient, bias_gradient);
  return {x_gradient, weight_gradient, bias_gradient};
}

}  // namespace lockstep::dense
