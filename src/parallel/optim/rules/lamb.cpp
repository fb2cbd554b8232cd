// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rules/kernel.h"

namespace lockstep::parallel {

struct LambNumbers {
  double gradient_scale, weight_decay, beta1, beta2;
  double correction1;       // 1 - beta1^step
  double root_correction2;  // sqrt(1 - beta2^step)
  double eps;
};
LOCKSTEP_RULE_KERNEL(lamb_direction, LambNumbers)  // it takes the gradient's place

struct LambStep {
  double size;
};
LOCKSTEP_RULE_KERNEL(lamb_step, LambStep)

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
namespace lockstep::parallel {
namespace LOCKSTEP_ISA {
namespace {

template <class T>
LOCKSTEP_HOST_DEVICE void lamb_direction(const RuleElements<T>& e, const LambNumbers& n) {
  const T* __restrict weight = e.weight;
  T* __restrict gradient = e.gradient;
  T* __restrict mean = e.state[0];
  T* __restrict square = e.state[1];
  const T scale = static_cast<T>(n.gradient_scale), decay = static_cast<T>(n.weight_decay);
  const T beta1 = static_cast<T>(n.beta1), rest1 = static_cast<T>(1 - n.beta1);
  const T beta2 = static_cast<T>(n.beta2), rest2 = static_cast<T>(1 - n.beta2);
  const T correction1 = static_cast<T>(n.correction1), root_correction2 = static_cast<T>(n.root_correction2);
  const T eps = static_cast<T>(n.eps);
  for (int64_t i = 0; i < e.count; ++i) {
    const T g = gradient[i] * scale;
    const T m = add_product(mean[i] * beta1, g, rest1);
    const T v = add_product(square[i] * beta2, rest2 * g, g);
    mean[i] = m;
    square[i] = v;
    gradient[i] = add_product(m / correction1 / (root(v) / root_correction2 + eps), weight[i], decay);
  }
}

template <class T>
LOCKSTEP_HOST_DEVICE void lamb_step(const RuleElements<T>& e, const LambStep& n) {
  T* __restrict weight = e.weight;
  const T* __restrict gradient = e.gradient;
  const T step = static_cast<T>(-n.size);
  for (int64_t i = 0; i < e.count; ++i) weight[i] = add_product(weight[i], gradient[i], step);
}

}  // namespace
}  // namespace LOCKSTEP_ISA

LOCKSTEP_DEFINE_RULE_KERNEL(lamb_direction, LambNumbers)
LOCKSTEP_DEFINE_RULE_KERNEL(lamb_step, LambStep)

}  // namespace lockstep::parallel

#else
#include "lockstep/parallel/rules/lamb.h"

#include <cmath>

#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {

std::vector<RuleNumber> Lamb::numbers() {
  return {
      {"lr", &lr}, {"beta1", &beta1, 0, 1}, {"beta2", &beta2, 0, 1}, {"eps", &eps}, {"weight_decay", &weight_decay}};
}

std::vector<std::string> Lamb::state_names() const {
  return {"exp_avg", "exp_avg_sq"};
}

void Lamb::prepare(const TensorUpdate& update, const RuleSlice& slice) const {
  const auto step = static_cast<double>(update.number);
  const LambNumbers n{.gradient_scale = update.gradient_scale,
                      .weight_decay = update.is_matrix ? weight_decay : 0,
                      .beta1 = beta1,
                      .beta2 = beta2,
                      .correction1 = 1 - std::pow(beta1, step),
                      .root_correction2 = std::sqrt(1 - std::pow(beta2, step)),
                      .eps = eps};
  if (has_kernel(slice)) return LOCKSTEP_CALL_RULE_KERNEL(lamb_direction, slice, n);
  const auto& mean = slice.state[0];
  const auto& square = slice.state[1];
  const auto gradient = scaled_gradient(slice, n.gradient_scale);
  mean.mul_(beta1).add_(gradient, 1 - beta1);
  square.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  const auto spread = square.sqrt().div_(n.root_correction2).add_(eps);
  slice.gradient.copy_(mean.div(n.correction1).div_(spread).add_(slice.weight, n.weight_decay));
}

double Lamb::ratio(const TensorUpdate&, const TensorNorms& norms) const {
  const double weight = std::sqrt(norms.weight), direction = std::sqrt(norms.direction);
  return weight > 0 && direction > 0 ? weight / direction : 1;
}

void Lamb::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  const LambStep n{lr * update.ratio};
  if (has_kernel(slice)) return LOCKSTEP_CALL_RULE_KERNEL(lamb_step, slice, n);
  slice.weight.add_(slice.gradient, -n.size);
}

}  // namespace lockstep::parallel
#endif
