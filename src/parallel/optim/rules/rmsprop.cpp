// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rules/kernel.h"

namespace lockstep::parallel {

struct RmsPropNumbers {
  double gradient_scale, step_size, weight_decay, alpha, eps, momentum;
  bool centered;
};
LOCKSTEP_RULE_KERNEL(rmsprop, RmsPropNumbers)

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
namespace lockstep::parallel {
namespace LOCKSTEP_ISA {
namespace {

template <class T, bool kCentered, bool kMomentum>
LOCKSTEP_HOST_DEVICE void rmsprop_pass(const RuleElements<T>& e, const RmsPropNumbers& n) {
  LOCKSTEP_RULE_ELEMENTS(T);
  T* __restrict square = e.state[0];
  T* __restrict buffer = e.state[1];
  T* __restrict mean = e.state[2];
  const T alpha = static_cast<T>(n.alpha), rest = static_cast<T>(1 - n.alpha);
  const T momentum = static_cast<T>(n.momentum), eps = static_cast<T>(n.eps);
  for (int64_t i = 0; i < count; ++i) {
    const T g = add_product(gradient[i] * scale, weight[i], decay);
    T v = add_product(square[i] * alpha, rest * g, g);
    square[i] = v;
    if (kCentered) {
      const T m = add_product(mean[i] * alpha, g, rest);
      mean[i] = m;
      v = add_product(v, -m, m);
    }
    const T spread = root(v) + eps;
    if (kMomentum) {
      const T b = buffer[i] * momentum + g / spread;
      buffer[i] = b;
      weight[i] = add_product(weight[i], b, step);
    } else {
      weight[i] = weight[i] + step * g / spread;
    }
  }
}

template <class T>
LOCKSTEP_HOST_DEVICE void rmsprop(const RuleElements<T>& e, const RmsPropNumbers& n) {
  if (n.centered) return n.momentum > 0 ? rmsprop_pass<T, true, true>(e, n) : rmsprop_pass<T, true, false>(e, n);
  n.momentum > 0 ? rmsprop_pass<T, false, true>(e, n) : rmsprop_pass<T, false, false>(e, n);
}

}  // namespace
}  // namespace LOCKSTEP_ISA

LOCKSTEP_DEFINE_RULE_KERNEL(rmsprop, RmsPropNumbers)

}  // namespace lockstep::parallel

#else
#include "lockstep/parallel/rules/rmsprop.h"
#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {

std::vector<RuleNumber> RmsProp::numbers() {
  return {{"lr", &lr},
          {"alpha", &alpha},
          {"eps", &eps},
          {"weight_decay", &weight_decay},
          {"momentum", &momentum},
          {"centered", &centered}};
}

// Each has one place, so that the kernel finds it without counting.
std::vector<std::string> RmsProp::state_names() const {
  if (centered) return {"square_avg", "momentum_buffer", "grad_avg"};
  if (momentum > 0) return {"square_avg", "momentum_buffer"};
  return {"square_avg"};
}

void RmsProp::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  const RmsPropNumbers n{update.gradient_scale, lr, weight_decay, alpha, eps, momentum, centered};
  if (has_kernel(slice)) return LOCKSTEP_CALL_RULE_KERNEL(rmsprop, slice, n);
  const auto& [square, buffer, mean] = slice.state;
  const auto gradient = scaled_gradient(slice, n.gradient_scale, weight_decay);
  at::Tensor spread = square.mul_(alpha).addcmul_(gradient, gradient, 1 - alpha);
  if (centered) {
    mean.mul_(alpha).add_(gradient, 1 - alpha);
    spread = spread.addcmul(mean, mean, -1);
  }
  spread = spread.sqrt().add_(eps);
  if (momentum > 0)
    slice.weight.add_(buffer.mul_(momentum).addcdiv_(gradient, spread), -lr);
  else
    slice.weight.addcdiv_(gradient, spread, -lr);
}

}  // namespace lockstep::parallel
#endif
