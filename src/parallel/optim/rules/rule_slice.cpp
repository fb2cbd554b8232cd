// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rules/rule_slice.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::parallel {

bool needs_norms(const Rule& rule, const at::Tensor& weight) {
  return weight.dim() > 1 && std::visit(
                                 [](const auto& r) {
                                   return requires {
                                     &std::decay_t<decltype(r)>::ratio;
                                   };
                                 },
                                 rule);
}

double ratio_of(const Rule& rule, const TensorUpdate& update, const TensorNorms& norms) {
  return std::visit(
      [&](const auto& r) -> double {
        if constexpr (requires { r.ratio(update, norms); })
          return r.ratio(update, norms);
        else
          return 1;
      },
      rule);
}

bool has_direction(const Rule& rule) {
  return std::visit(
      [](const auto& r) {
        return requires {
          &std::decay_t<decltype(r)>::prepare;
        };
      },
      rule);
}

void prepare(const Rule& rule, const TensorUpdate& update, const RuleSlice& slice) {
  const at::NoGradGuard no_grad;
  std::visit(
      [&](const auto& r) {
        if constexpr (requires { r.prepare(update, slice); }) r.prepare(update, slice);
      },
      rule);
}

void apply(const Rule& rule, const TensorUpdate& update, const RuleSlice& slice) {
  const at::NoGradGuard no_grad;
  std::visit([&](const auto& r) { r.apply(update, slice); }, rule);
}

double initial_state(const Rule& rule) {
  return std::visit(
      [](const auto& r) -> double {
        if constexpr (requires { r.initial_state(); })
          return r.initial_state();
        else
          return 0;
      },
      rule);
}

bool has_kernel(const RuleSlice& slice) {
  const at::ScalarType type = slice.weight.scalar_type();
  return (slice.weight.is_cpu() || slice.batch != nullptr) && (type == at::kFloat || type == at::kDouble);
}

at::Tensor scaled_gradient(const RuleSlice& slice, double gradient_scale, double weight_decay) {
  const at::Tensor gradient = gradient_scale == 1 ? slice.gradient : slice.gradient.mul(gradient_scale);
  return weight_decay == 0 ? gradient : gradient.add(slice.weight, weight_decay);
}

}  // namespace lockstep::parallel
