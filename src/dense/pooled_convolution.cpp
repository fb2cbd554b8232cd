// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/pooled_convolution.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>
#include <vector>

#include "dense/cpu/pooled_convolution.h"
#include "dense/image_choice.h"
#include "lockstep/base/error.h"
#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/backward_order.h"
#include "lockstep/context/detail/context.h"

namespace lockstep::dense {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
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

/// A convolution and what was done with its values, for its gradients.
class PooledConvolution : public Node, public KernelAGradient {
 public:
  PooledConvolution(const variable_list& inputs, at::Tensor signs, Pair window, const ConvolutionOptions& options)
      : Node(torch::autograd::collect_next_edges(inputs[0], inputs[1], inputs[kBias])),
        signs_(std::move(signs)),
        window_(window),
        options_(options) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return variable_list(inputs_.size());
    variable_list saved;
    for (const SavedVariable& input : inputs_) saved.push_back(input.unpack());
    if (at::GradMode::is_enabled()) return through_three(saved, gradients[0]);
    variable_list found(saved.size());
    for (size_t i = 0; i < saved.size(); ++i)
      if (asks_for(i))
        found[i] =
            i == kBias ? at::empty(saved[i].sizes(), saved[i].options()) : empty_image(saved[i], saved[i].sizes());
    const PooledGeometry g(saved[0], saved[1], window_, options_);
    cpu::pooled_gradients(g.convolution, g.windows, channels_last(gradients[0]), channels_last(saved[0]),
                          channels_last(saved[1]), signs_, found[0], found[1], found[kBias]);
    return found;
  }

  void release_variables() override {
    for (SavedVariable& input : inputs_) input.reset_data();
    signs_.reset();
  }

 private:
  static constexpr size_t kBias = 2;

  bool asks_for(size_t input) const { return task_should_compute_output(input); }

  /// Gradients that have gradients themselves.
  variable_list through_three(const variable_list& saved, const at::Tensor& gradient) const {
    variable_list inputs, found(saved.size());
    for (size_t i = 0; i < saved.size(); ++i)
      if (asks_for(i)) inputs.push_back(saved[i]);
    const auto gradients = torch::autograd::grad({in_three(saved[0], saved[1], saved[kBias], window_, options_)},
                                                 inputs, {gradient}, /*retain_graph=*/true, /*create_graph=*/true);
    auto next = gradients.begin();
    for (size_t i = 0; i < saved.size(); ++i)
      if (asks_for(i)) found[i] = *next++;
    return found;
  }

  std::vector<SavedVariable> inputs_;
  at::Tensor signs_;
  const Pair window_;
  const ConvolutionOptions options_;
};

at::Tensor in_one_pass(const variable_list& inputs, Pair window, const ConvolutionOptions& options) {
  const auto &x = inputs[0], &weight = inputs[1];
  const PooledGeometry g(x, weight, window, options);
  const at::Tensor signs = at::empty({cpu::signs_size(g.convolution)}, at::kChar);
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = empty_image(x, {g.windows.images, g.convolution.filters, g.windows.out_height, g.windows.out_width});
    cpu::pooled_convolution(g.convolution, g.windows, channels_last(x), channels_last(weight), inputs[2], signs, y);
  }
  if (torch::autograd::compute_requires_grad(x, weight, inputs[2]))
    torch::autograd::set_history(y, make_node<PooledConvolution>(inputs, signs, window, options));
  return y;
}

}  // namespace

at::Tensor convolve_relu_pool(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Pair window,
                              const ConvolutionOptions& options) {
  const Context& context = Context::current();
  const bool is_ours = context.images != nullptr && context.slices == nullptr &&
                       !at::autocast::is_autocast_enabled(at::kCPU) && takes(x, weight, options.stride == Pair{1, 1});
  if (!is_ours) return in_three(x, weight, bias, window, options);
  return in_one_pass({x, weight, bias}, window, options);
}

}  // namespace lockstep::dense
