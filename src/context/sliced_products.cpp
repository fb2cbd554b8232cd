// SPDX-License-Identifier: Apache-2.0
// Linear layers in slices. They end in mm or addmm, with their weights as the right factor. Below autograd such a
// product no longer says on which side the output channels are: of a layer's three products one has them inside. So the
// formula of autograd's is one of our own.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/slices.h"
#include "lockstep/context/overrides.h"

namespace lockstep {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The products inside are computed as they are.
class WholeScope {
 public:
  WholeScope() : outer_(std::exchange(Context::current().slices, nullptr)) {}
  ~WholeScope() { Context::current().slices = outer_; }
  WholeScope(const WholeScope&) = delete;
  WholeScope& operator=(const WholeScope&) = delete;

 private:
  const Slices* outer_;
};

/// What libtorch registers for autograd in general, where we have taken the place of its CPU's.
DispatchKeySet libtorchs(DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(DispatchKey::AutogradOther);
}

bool lies_by_columns(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

/// y = x @ weight + bias: [N, in], [in, out] and [out] or nothing.
struct SlicedProduct : torch::autograd::Function<SlicedProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const Slices* slices) {
    const WholeScope whole;
    context->save_for_backward({x, weight});
    context->saved_data["slices"] = slices->count();
    context->saved_data["has_bias"] = bias.has_value();
    return at::cat(slices->each(weight.size(1),
                                [&](Interval part) {
                                  const at::Tensor w = narrowed(weight, 1, part);
                                  return bias ? at::addmm(narrowed(*bias, 0, part), x, w) : at::mm(x, w);
                                }),
                   1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return variable_list(4);
    const Slices* const shared = Context::current().slices;
    const Slices own(context->saved_data["slices"].toInt());
    const Slices& slices = shared != nullptr && shared->count() == own.count() ? *shared : own;
    const WholeScope whole;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &gradient = gradients[0];
    const bool by_columns = lies_by_columns(weight);
    const bool wants_x = context->needs_input_grad(0), wants_weight = context->needs_input_grad(1),
               wants_bias = context->saved_data["has_bias"].toBool() && context->needs_input_grad(2);
    const auto parts = slices.each(weight.size(1), [&](Interval part) {
      const at::Tensor g = narrowed(gradient, 1, part);
      LayerGradients found;
      if (wants_x) std::get<0>(found) = at::mm(g, narrowed(weight, 1, part).t());
      if (wants_weight) std::get<1>(found) = by_columns ? at::mm(g.t(), x) : at::mm(x.t(), g);
      if (wants_bias) std::get<2>(found) = g.sum(0);
      return found;
    });
    auto [of_x, of_weight, of_bias] = join(parts, by_columns ? 0 : 1);
    if (by_columns && of_weight.defined()) of_weight = of_weight.t();
    return {of_x, of_weight, of_bias, at::Tensor()};
  }
};

/// The slices in which a product is computed; null: as a whole.
const Slices* slices_of(const at::Tensor& x, const at::Tensor& weight) {
  const Slices* const slices = Context::current().slices;
  const bool fits = slices != nullptr && x.dim() == 2 && weight.dim() == 2 && weight.size(1) > 0 &&
                    x.layout() == at::kStrided && weight.layout() == at::kStrided;
  return fits ? slices : nullptr;
}

at::Tensor mm(DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight) {
  if (const Slices* slices = slices_of(x, weight)) return SlicedProduct::apply(x, weight, std::nullopt, slices);
  return at::_ops::mm::redispatch(libtorchs(keys), x, weight);
}

at::Tensor addmm(DispatchKeySet keys, const at::Tensor& bias, const at::Tensor& x, const at::Tensor& weight,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  const Slices* const slices = slices_of(x, weight);
  if (slices != nullptr && bias.dim() == 1 && bias.size(0) == weight.size(1) && beta.equal(1) && alpha.equal(1))
    return SlicedProduct::apply(x, weight, std::optional(bias), slices);
  return at::_ops::addmm::redispatch(libtorchs(keys), bias, x, weight, beta, alpha);
}

torch::Library register_products() {
  torch::Library library(torch::Library::IMPL, "aten", DispatchKey::AutogradCPU, __FILE__, __LINE__);
  library.impl("mm", TORCH_FN(mm));
  library.impl("addmm", TORCH_FN(addmm));
  return library;
}

}  // namespace

void install_sliced_products() {
  static const torch::Library once = register_products();
}

}  // namespace lockstep
