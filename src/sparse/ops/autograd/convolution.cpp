// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/backward_order.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

KernelMapPtr saved_kernel_map(AutogradContext* context) {
  return context->saved_data["map"].toCustomClass<KernelMap>();
}

/// How a convolution y = x * W was computed, for its gradients. It is linear in x and in W: each gradient is an
/// operation of the same family, on the transposed map or with the weights transposed.
struct ConvolutionCall {
  KernelMapPtr map;
  bool transposed;
  int64_t groups;
};

/// A node of its own: it may run when there is nothing better to do.
class ConvolutionWeightGradient : public Node {
 public:
  ConvolutionWeightGradient(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y, ConvolutionCall call)
      : Node(deferred_node_number(), torch::autograd::collect_next_edges(weight)),
        call_(std::move(call)),
        x_(x, /*is_output=*/false) {
    add_input_metadata(y);
  }
  variable_list apply(variable_list&& grads) override {
    const at::Tensor &g = grads[0], x = x_.unpack();
    const auto& [map, transposed, groups] = call_;
    if (!g.defined() || !task_should_compute_output(0)) return {at::Tensor()};
    return {transposed ? sparse::convolution_weight(g, x, map->transposed(), groups)
                       : sparse::convolution_weight(x, g, map, groups)};
  }
  void release_variables() override {
    x_.reset_data();
    call_.map.reset();  // a loss that is kept keeps its nodes
  }

 private:
  ConvolutionCall call_;
  SavedVariable x_;
};

/// The gradient of x; y's gradient goes on to the weight's node as it is.
class ConvolutionGradient : public Node, public KernelAGradient {
 public:
  ConvolutionGradient(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y, const ConvolutionCall& call)
      : call_(call), weight_(weight, /*is_output=*/false) {
    add_next_edge(torch::autograd::impl::gradient_edge(x));
    if (weight.requires_grad()) add_next_edge({make_node<ConvolutionWeightGradient>(x, weight, y, call), 0});
  }
  variable_list apply(variable_list&& grads) override {
    const at::Tensor &g = grads[0], weight = weight_.unpack();
    at::Tensor dx;
    if (g.defined() && task_should_compute_output(0))
      dx = sparse::convolution(g, weight, call_.map->transposed(), !call_.transposed, call_.groups);
    return num_outputs() == 1 ? variable_list{dx} : variable_list{dx, g};
  }
  void release_variables() override {
    weight_.reset_data();
    call_.map.reset();
  }

 private:
  ConvolutionCall call_;
  SavedVariable weight_;
};

struct ConvolutionWeight : Function<ConvolutionWeight> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map,
                            int64_t groups) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, g});
    context->saved_data["map"] = map;
    context->saved_data["groups"] = groups;
    return sparse::convolution_weight(x, g, map, groups);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const KernelMapPtr map = saved_kernel_map(context);
    const int64_t groups = context->saved_data["groups"].toInt();
    at::Tensor dx, dg;
    if (context->needs_input_grad(0)) dx = sparse::convolution(saved[1], grads[0], map->transposed(), true, groups);
    if (context->needs_input_grad(1)) dg = sparse::convolution(saved[0], grads[0], map, false, groups);
    return {dx, dg, {}, {}};
  }
};

struct Channelwise : Function<Channelwise> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const KernelMapPtr& map) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight});
    context->saved_data["map"] = map;
    return sparse::channelwise(x, weight, map);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const KernelMapPtr map = saved_kernel_map(context);
    at::Tensor dx, dw;
    if (context->needs_input_grad(0)) dx = sparse::channelwise(grads[0], saved[1], map->transposed());
    if (context->needs_input_grad(1)) dw = sparse::channelwise_weight(saved[0], grads[0], map);
    return {dx, dw, {}};
  }
};

struct ChannelwiseWeight : Function<ChannelwiseWeight> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& g,
                            const KernelMapPtr& map) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, g});
    context->saved_data["map"] = map;
    return sparse::channelwise_weight(x, g, map);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const KernelMapPtr map = saved_kernel_map(context);
    at::Tensor dx, dg;
    if (context->needs_input_grad(0)) dx = sparse::channelwise(saved[1], grads[0], map->transposed());
    if (context->needs_input_grad(1)) dg = sparse::channelwise(saved[0], grads[0], map);
    return {dx, dg, {}};
  }
};

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,
                       int64_t groups) {
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    y = sparse::convolution(x, weight, map, transposed, groups);
  }
  if (torch::autograd::compute_requires_grad(x, weight))
    torch::autograd::set_history(
        y, make_node<ConvolutionGradient>(x, weight, y, ConvolutionCall{map, transposed, groups}));
  return y;
}
at::Tensor convolution_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map, int64_t groups) {
  return ConvolutionWeight::apply(x, g, map, groups);
}
at::Tensor channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map) {
  return Channelwise::apply(x, weight, map);
}
at::Tensor channelwise_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map) {
  return ChannelwiseWeight::apply(x, g, map);
}

}  // namespace lockstep::sparse::autograd
