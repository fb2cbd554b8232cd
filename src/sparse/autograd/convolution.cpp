// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/autograd/custom_function.h>

#include "sparse/operations.h"

namespace lockstep::sparse::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

KernelMapPtr saved_kernel_map(AutogradContext* context) {
  return context->saved_data["map"].toCustomClass<KernelMap>();
}

/// y = x * W is linear in x and in W; each gradient is an operation of the same family, on the transposed map or with
/// the weights transposed.
struct Convolution : Function<Convolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const KernelMapPtr& map, bool transposed, int64_t groups) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight});
    context->saved_data["map"] = map;
    context->saved_data["transposed"] = transposed;
    context->saved_data["groups"] = groups;
    return sparse::convolution(x, weight, map, transposed, groups);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &g = grads[0];
    const KernelMapPtr map = saved_kernel_map(context), back = map->transposed();
    const bool transposed = context->saved_data["transposed"].toBool();
    const int64_t groups = context->saved_data["groups"].toInt();
    at::Tensor dx, dw;
    if (context->needs_input_grad(0)) dx = sparse::convolution(g, weight, back, !transposed, groups);
    if (context->needs_input_grad(1))
      dw = transposed ? sparse::convolution_weight(g, x, back, groups) : sparse::convolution_weight(x, g, map, groups);
    return {dx, dw, {}, {}, {}};
  }
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
  return Convolution::apply(x, weight, map, transposed, groups);
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
