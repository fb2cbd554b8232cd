// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW.
#include "parallel/optim/rules/kernel.h"

namespace lockstep::parallel {

struct AdamNumbers {
  double gradient_scale, step_size, weight_decay;
  double keep;  // decoupled decay: the weight is multiplied by this first
  double beta1, beta2;
  double root_correction2;  // sqrt(1 - beta2^step)
  double eps;
  bool amsgrad;
};
LOCKSTEP_RULE_KERNEL(adam, AdamNumbers)

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
namespace lockstep::parallel {
namespace LOCKSTEP_ISA {
namespace {

template <class T, bool kAmsgrad>
LOCKSTEP_HOST_DEVICE void adam_pass(const RuleElements<T>& e, const AdamNumbers& n) {
  LOCKSTEP_RULE_ELEMENTS(T);
  T* __restrict mean = e.state[0];
  T* __restrict square = e.state[1];
  T* __restrict greatest = e.state[2];
  const T keep = static_cast<T>(n.keep), eps = static_cast<T>(n.eps);
  const T beta1 = static_cast<T>(n.beta1), rest1 = static_cast<T>(1 - n.beta1);
  const T beta2 = static_cast<T>(n.beta2), rest2 = static_cast<T>(1 - n.beta2);
  const T root_correction = static_cast<T>(n.root_correction2);
  for (int64_t i = 0; i < count; ++i) {
    const T w = weight[i] * keep;
    const T g = add_product(gradient[i] * scale, w, decay);
    const T m = add_product(mean[i] * beta1, g, rest1);
    const T v = add_product(square[i] * beta2, rest2 * g, g);
    mean[i] = m;
    square[i] = v;
    T most = v;
    if (kAmsgrad) {
      most = greatest[i] > v ? greatest[i] : v;
      greatest[i] = most;
    }
    weight[i] = w + step * m / (root(most) / root_correction + eps);
  }
}

template <class T>
LOCKSTEP_HOST_DEVICE void adam(const RuleElements<T>& e, const AdamNumbers& n) {
  n.amsgrad ? adam_pass<T, true>(e, n) : adam_pass<T, false>(e, n);
}

}  // namespace
}  // namespace LOCKSTEP_ISA

LOCKSTEP_DEFINE_RULE_KERNEL(adam, AdamNumbers)

}  // namespace lockstep::parallel

#else
#include "lockstep/parallel/rules/adam.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/max.h>

#include <cmath>

#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {
namespace {

template <class Rule>
std::vector<RuleNumber> numbers_of_adam(Rule& rule) {
  return {{"lr", &rule.lr},   {"beta1", &rule.beta1, 0, 1},         {"beta2", &rule.beta2, 0, 1},
          {"eps", &rule.eps}, {"weight_decay", &rule.weight_decay}, {"amsgrad", &rule.amsgrad}};
}

std::vector<std::string> state_of_adam(bool amsgrad) {
  if (amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

template <class Rule>
void apply_adam(const Rule& rule, const TensorUpdate& update, const RuleSlice& slice, double weight_decay,
                double keep) {
  const auto step = static_cast<double>(update.number);
  const AdamNumbers n{.gradient_scale = update.gradient_scale,
                      .step_size = rule.lr / (1 - std::pow(rule.beta1, step)),
                      .weight_decay = weight_decay,
                      .keep = keep,
                      .beta1 = rule.beta1,
                      .beta2 = rule.beta2,
                      .root_correction2 = std::sqrt(1 - std::pow(rule.beta2, step)),
                      .eps = rule.eps,
                      .amsgrad = rule.amsgrad};
  if (has_kernel(slice)) return LOCKSTEP_CALL_RULE_KERNEL(adam, slice, n);
  const auto& [mean, square, greatest] = slice.state;
  if (keep != 1) slice.weight.mul_(keep);
  const auto gradient = scaled_gradient(slice, n.gradient_scale, weight_decay);
  mean.mul_(n.beta1).add_(gradient, 1 - n.beta1);
  square.mul_(n.beta2).addcmul_(gradient, gradient, 1 - n.beta2);
  if (n.amsgrad) {
    auto most = greatest;
    at::max_out(most, greatest, square);
  }
  slice.weight.addcdiv_(mean, (n.amsgrad ? greatest : square).sqrt().div_(n.root_correction2).add_(n.eps),
                        -n.step_size);
}

}  // namespace

std::vector<RuleNumber> Adam::numbers() {
  return numbers_of_adam(*this);
}
std::vector<RuleNumber> AdamW::numbers() {
  return numbers_of_adam(*this);
}

std::vector<std::string> Adam::state_names() const {
  return state_of_adam(amsgrad);
}
std::vector<std::string> AdamW::state_names() const {
  return state_of_adam(amsgrad);
}

void Adam::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  apply_adam(*this, update, slice, weight_decay, 1);
}
void AdamW::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  apply_adam(*this, update, slice, 0, weight_decay == 0 ? 1 : 1 - lr * weight_decay);
}

}  // namespace lockstep::parallel
#endif
