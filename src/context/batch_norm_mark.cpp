// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/batch_norm_mark.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace lockstep {
namespace {

/// Of what libtorch keeps of a tensor, only autograd's part outlives set_data, and in that only hooks on the gradient
/// take an object of ours. This one does nothing with a gradient, and running statistics have none.
struct Mark : torch::autograd::FunctionPreHook {
  explicit Mark(BatchNormFunction given) : function(std::move(given)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    return gradients;
  }

  BatchNormFunction function;
};

Mark* find_mark(const at::Tensor& carrier) {
  if (!carrier.defined() || torch::autograd::impl::get_autograd_meta(carrier) == nullptr) return nullptr;
  for (const auto& hook : torch::autograd::impl::hooks(carrier))
    if (auto* mark = dynamic_cast<Mark*>(hook.get())) return mark;
  return nullptr;
}

}  // namespace

void mark_batch_norm(const at::Tensor& carrier, BatchNormFunction function) {
  if (Mark* mark = find_mark(carrier))
    mark->function = std::move(function);
  else
    torch::autograd::impl::add_hook(carrier, std::make_unique<Mark>(std::move(function)));
}

void copy_batch_norm_mark(const at::Tensor& from, const at::Tensor& to) {
  if (const BatchNormFunction* function = batch_norm_mark(from)) mark_batch_norm(to, *function);
}

const BatchNormFunction* batch_norm_mark(const at::Tensor& carrier) {
  const Mark* mark = find_mark(carrier);
  return mark == nullptr ? nullptr : &mark->function;
}

}  // namespace lockstep
