// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rules/kernel.h"

namespace lockstep::parallel {

struct SgdNumbers {
  double gradient_scale, step_size, weight_decay, momentum, one_minus_dampening;
  bool first;  // momentum starts from the gradient
  bool nesterov;
};
LOCKSTEP_RULE_KERNEL(sgd, SgdNumbers)

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
namespace lockstep::parallel {
namespace LOCKSTEP_ISA {
namespace {

template <class T, bool kNesterov>
LOCKSTEP_HOST_DEVICE void sgd_with_momentum(const RuleElements<T>& e, const SgdNumbers& n) {
  LOCKSTEP_RULE_ELEMENTS(T);
  T* __restrict buffer = e.state[0];
  const T momentum = static_cast<T>(n.momentum), share = static_cast<T>(n.one_minus_dampening);
  const bool first = n.first;
  for (int64_t i = 0; i < count; ++i) {
    const T g = add_product(gradient[i] * scale, weight[i], decay);
    const T b = first ? g : add_product(buffer[i] * momentum, g, share);
    buffer[i] = b;
    weight[i] = add_product(weight[i], kNesterov ? add_product(g, b, momentum) : b, step);
  }
}

template <class T>
LOCKSTEP_HOST_DEVICE void sgd(const RuleElements<T>& e, const SgdNumbers& n) {
  if (n.momentum != 0) return n.nesterov ? sgd_with_momentum<T, true>(e, n) : sgd_with_momentum<T, false>(e, n);
  LOCKSTEP_RULE_ELEMENTS(T);
  for (int64_t i = 0; i < count; ++i)
    weight[i] = add_product(weight[i], add_product(gradient[i] * scale, weight[i], decay), step);
}

}  // namespace
}  // namespace LOCKSTEP_ISA

LOCKSTEP_DEFINE_RULE_KERNEL(sgd, SgdNumbers)

}  // namespace lockstep::parallel

#else
#include "lockstep/base/error.h"
#include "lockstep/parallel/rules/sgd.h"
#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {

std::vector<RuleNumber> Sgd::numbers() {
  return {{"lr", &lr},
          {"momentum", &momentum},
          {"dampening", &dampening, -std::numeric_limits<double>::infinity()},
          {"weight_decay", &weight_decay},
          {"nesterov", &nesterov}};
}

void Sgd::check() const {
  require(!nesterov || (momentum > 0 && dampening == 0), name, "nesterov with momentum ", momentum, " and dampening ",
          dampening, ", expected a momentum and no dampening");
}

std::vector<std::string> Sgd::state_names() const {
  if (momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  const bool first = update.number == 1;
  const SgdNumbers n{update.gradient_scale, lr, weight_decay, momentum, 1 - dampening, first, nesterov};
  if (has_kernel(slice)) return LOCKSTEP_CALL_RULE_KERNEL(sgd, slice, n);
  auto gradient = scaled_gradient(slice, n.gradient_scale, weight_decay);
  if (momentum != 0) {
    const auto& buffer = slice.state[0];
    if (first)
      buffer.copy_(gradient);
    else
      buffer.mul_(momentum).add_(gradient, n.one_minus_dampening);
    gradient = nesterov ? gradient.add(buffer, momentum) : buffer;
  }
  slice.weight.add_(gradient, -lr);
}

}  // namespace lockstep::parallel
#endif
