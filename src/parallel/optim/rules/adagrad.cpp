// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rules/kernel.h"

namespace lockstep::parallel {

struct AdagradNumbers {
  double gradient_scale, step_size, weight_decay, eps;
};
LOCKSTEP_RULE_KERNEL(adagrad, AdagradNumbers)

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
namespace lockstep::parallel {
namespace LOCKSTEP_ISA {
namespace {

template <class T>
LOCKSTEP_HOST_DEVICE void adagrad(const RuleElements<T>& e, const AdagradNumbers& n) {
  LOCKSTEP_RULE_ELEMENTS(T);
  T* __restrict sum = e.state[0];
  const T eps = static_cast<T>(n.eps);
  for (int64_t i = 0; i < count; ++i) {
    const T g = add_product(gradient[i] * scale, weight[i], decay);
    const T s = add_product(sum[i], g, g);
    sum[i] = s;
    weight[i] = weight[i] + step * g / (root(s) + eps);
  }
}

}  // namespace
}  // namespace LOCKSTEP_ISA

LOCKSTEP_DEFINE_RULE_KERNEL(adagrad, AdagradNumbers)

}  // namespace lockstep::parallel

#else
#include "lockstep/parallel/rules/adagrad.h"
#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {

std::vector<RuleNumber> Adagrad::numbers() {
  return {{"lr", &lr},
          {"lr_decay", &lr_decay},
          {"weight_decay", &weight_decay},
          {"initial_accumulator_value", &initial_accumulator_value},
          {"eps", &eps}};
}

std::vector<std::string> Adagrad::state_names() const {
  return {"sum"};
}

void Adagrad::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  const double step_size = lr / (1 + static_cast<double>(update.number - 1) * lr_decay);
  const AdagradNumbers n{update.gradient_scale, step_size, weight_decay, eps};
  if (has_kernel(slice)) return LOCKSTEP_CALL_RULE_KERNEL(adagrad, slice, n);
  const auto gradient = scaled_gradient(slice, n.gradient_scale, weight_decay);
  const auto& sum = slice.state[0].addcmul_(gradient, gradient, 1.0);
  slice.weight.addcdiv_(gradient, sum.sqrt().add_(eps), -step_size);
}

}  // namespace lockstep::parallel
#endif
