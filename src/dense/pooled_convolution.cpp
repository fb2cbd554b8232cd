// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/pooled_convolution.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "dense/cpu/pooled_convolution.h"
#include "dense/image_choice.h"
#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"

namespace lockstep::dense {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pair = std::array<int64_t, 2>;

at::Tensor in_three(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Pair window,
                    const ConvolutionOptions& options) {
  return at::avg_pool2d(at::relu(at::conv2d(x, weight, bias, options.stride, options.padding)), window);
}

/// Windows on the output of a convolution, and that convolution cut down to what they cover.
struct PooledGeometry {
  Geometry convolution, windows;

  PooledGeometry(const at::Tensor& x, const at::Tensor& weight, Pair window, const ConvolutionOptions& options)
      : convolution(geometry_of(x, weight, options)) {
    const auto [height, width] = window;
    require(height > 0 && width > 0 && height <= convolution.out_height && width <= convolution.out_width,
            "dense::convolve_relu_pool", "the window is ", height, " x ", width,
            ", expected at least 1 x 1 and at most ", convolution.out_height, " x ", convolution.out_width,
            ", what the convolution gives");
    convolution.out_height -= convolution.out_height % height;
    convolution.out_width -= convolution.out_width % width;
    windows = windows_on(convolution.images, convolution.out_height, convolution.out_width, window, window);
  }
};

struct InOnePass : torch::autograd::Function<InOnePass> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, Pair window,
                            const ConvolutionOptions& options) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    const PooledGeometry g(x, weight, window, options);
    const at::Tensor signs = at::empty({cpu::signs_size(g.convolution)}, at::kChar);
    at::Tensor y = empty_image(x, {g.windows.images, g.convolution.filters, g.windows.out_height, g.windows.out_width});
    cpu::pooled_convolution(g.convolution, g.windows, channels_last(x), channels_last(weight), bias, signs, y);
    context->save_for_backward({x, weight, bias, signs});
    for (const auto& [name, pair] :
         {std::pair{"window", window}, {"stride", options.stride}, {"padding", options.padding}})
      context->saved_data[name] = std::vector<int64_t>(pair.begin(), pair.end());
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto pair = [&](const char* name) {
      const auto values = context->saved_data[name].toIntVector();
      return Pair{values[0], values[1]};
    };
    const Pair window = pair("window");
    const ConvolutionOptions options{pair("stride"), pair("padding")};
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    if (at::GradMode::is_enabled()) return through_three(context, saved, gradients[0], window, options);
    const PooledGeometry g(x, weight, window, options);
    at::Tensor dx, dw, db;
    if (context->needs_input_grad(0)) dx = empty_image(x, x.sizes());
    if (context->needs_input_grad(1)) dw = empty_image(weight, weight.sizes());
    if (bias.defined() && context->needs_input_grad(2)) db = at::empty(bias.sizes(), bias.options());
    cpu::pooled_gradients(g.convolution, g.windows, channels_last(gradients[0]), channels_last(x),
                          channels_last(weight), saved[3], dx, dw, db);
    return {dx, dw, db, {}, {}};
  }

  /// Gradients that have gradients themselves.
  static variable_list through_three(AutogradContext* context, const variable_list& saved, const at::Tensor& gradient,
                                     Pair window, const ConvolutionOptions& options) {
    variable_list inputs, found(5);
    for (size_t i = 0; i < 3; ++i)
      if (saved[i].defined() && context->needs_input_grad(i)) inputs.push_back(saved[i]);
    const auto gradients = torch::autograd::grad({in_three(saved[0], saved[1], saved[2], window, options)}, inputs,
                                                 {gradient}, /*retain_graph=*/true, /*create_graph=*/true);
    auto next = gradients.begin();
    for (size_t i = 0; i < 3; ++i)
      if (saved[i].defined() && context->needs_input_grad(i)) found[i] = *next++;
    return found;
  }
};

}  // namespace

at::Tensor convolve_relu_pool(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Pair window,
                              const ConvolutionOptions& options) {
  const Context& context = Context::current();
  const bool is_ours = context.images != nullptr && context.slices == nullptr &&
                       !at::autocast::is_autocast_enabled(at::kCPU) && takes(x, weight, options.stride == Pair{1, 1});
  if (!is_ours) return in_three(x, weight, bias, window, options);
  return InOnePass::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, window, options);
}

}  // namespace lockstep::dense
