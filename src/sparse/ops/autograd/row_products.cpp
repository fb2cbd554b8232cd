// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/autograd/custom_function.h>

#include "sparse/ops/kernels.h"

namespace lockstep::sparse::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

RowMapPtr saved_row_map(AutogradContext* context) {
  return context->saved_data["map"].toCustomClass<RowMap>();
}

MaybeTensor maybe(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

struct RowSum : Function<RowSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const RowMapPtr& map,
                            const MaybeTensor& weights) {
    at::AutoDispatchBelowADInplaceOrView below;
    // The input itself is only needed for the gradient of weights.
    const bool weight_gradient = weights && weights->requires_grad();
    context->save_for_backward({weight_gradient ? x : at::Tensor(), weights.value_or(at::Tensor())});
    context->saved_data["map"] = map;
    return sparse::row_sum(x, map, weights);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const RowMapPtr map = saved_row_map(context);
    at::Tensor dx, dw;
    if (context->needs_input_grad(0)) dx = sparse::row_sum(grads[0], map->transposed(), maybe(saved[1]));
    if (saved[0].defined()) dw = sparse::row_dot(grads[0], saved[0], map);
    return {dx, {}, dw};
  }
};

struct RowDot : Function<RowDot> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& g, const at::Tensor& x, const RowMapPtr& map) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({g, x});
    context->saved_data["map"] = map;
    return sparse::row_dot(g, x, map);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const RowMapPtr map = saved_row_map(context);
    at::Tensor dg, dx;
    if (context->needs_input_grad(0)) dg = sparse::row_sum(saved[1], map, grads[0]);
    if (context->needs_input_grad(1)) dx = sparse::row_sum(saved[0], map->transposed(), grads[0]);
    return {dg, dx, {}};
  }
};

struct RowPick : Function<RowPick> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const RowMapPtr& map,
                            const at::Tensor& chosen) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({chosen});
    context->saved_data["map"] = map;
    return sparse::row_pick(x, map, chosen);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {sparse::row_unpick(grads[0], saved_row_map(context), context->get_saved_variables()[0]), {}, {}};
  }
};

struct RowUnpick : Function<RowUnpick> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& g, const RowMapPtr& map,
                            const at::Tensor& chosen) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({chosen});
    context->saved_data["map"] = map;
    return sparse::row_unpick(g, map, chosen);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {sparse::row_pick(grads[0], saved_row_map(context), context->get_saved_variables()[0]), {}, {}};
  }
};

struct ColumnSum : Function<ColumnSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->saved_data["rows"] = x.size(0);
    return sparse::column_sum(x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {sparse::expand_rows(grads[0], context->saved_data["rows"].toInt())};
  }
};

struct ExpandRows : Function<ExpandRows> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& values, int64_t rows) {
    return values.unsqueeze(0).expand({rows, values.size(0)});
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {sparse::column_sum(grads[0]), {}}; }
};

}  // namespace

at::Tensor row_sum(const at::Tensor& x, const RowMapPtr& map, const MaybeTensor& weights) {
  return RowSum::apply(x, map, weights);
}
at::Tensor row_dot(const at::Tensor& g, const at::Tensor& x, const RowMapPtr& map) {
  return RowDot::apply(g, x, map);
}
at::Tensor row_pick(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& chosen) {
  return RowPick::apply(x, map, chosen);
}
at::Tensor row_unpick(const at::Tensor& g, const RowMapPtr& map, const at::Tensor& chosen) {
  return RowUnpick::apply(g, map, chosen);
}
at::Tensor column_sum(const at::Tensor& x) {
  return ColumnSum::apply(x);
}

}  // namespace lockstep::sparse::autograd

at::Tensor lockstep::sparse::expand_rows(const at::Tensor& values, int64_t rows) {
  return autograd::ExpandRows::apply(values, rows);
}
