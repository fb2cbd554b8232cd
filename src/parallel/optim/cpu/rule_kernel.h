// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

namespace lockstep::parallel {

/// A rule's numbers for one tensor in one step, worked out once in double, as torch::optim does.
struct RuleNumbers {
  double gradient_scale = 1;  // 1 / the sum of the replicas' weights, times clipping, over loss scaling
  double step_size = 0;       // what the direction is multiplied by, bias correction included
  double weight_decay = 0;
  double keep = 1;  // decoupled decay: the weight is multiplied by this first
  double momentum = 0;
  double one_minus_dampening = 1;
  double beta1 = 0;
  double beta2 = 0;
  double root_correction2 = 1;  // sqrt(1 - beta2^step)
  double correction1 = 1;       // 1 - beta1^step, where step_size does not hold it
  double eps = 0;
  bool first = false;  // momentum starts from the gradient
  bool nesterov = false;
  bool amsgrad = false;
  bool centered = false;
};

/// A run of elements of one tensor, its reduced gradient and the rule's state.
template <class T>
struct RuleSpan {
  T* weight;
  T* gradient;
  T* state[3];
  int64_t count;
};

#define LOCKSTEP_RULE_KERNELS(T, suffix)                                                     \
  LOCKSTEP_DECLARE_ISA(void sgd_##suffix(const RuleSpan<T>&, const RuleNumbers&))            \
  LOCKSTEP_DECLARE_ISA(void adam_##suffix(const RuleSpan<T>&, const RuleNumbers&))           \
  LOCKSTEP_DECLARE_ISA(void rmsprop_##suffix(const RuleSpan<T>&, const RuleNumbers&))        \
  LOCKSTEP_DECLARE_ISA(void adagrad_##suffix(const RuleSpan<T>&, const RuleNumbers&))        \
  /* LAMB's direction takes the gradient's place. */                                         \
  LOCKSTEP_DECLARE_ISA(void lamb_direction_##suffix(const RuleSpan<T>&, const RuleNumbers&)) \
  /* weight -= step_size * gradient */                                                       \
  LOCKSTEP_DECLARE_ISA(void descend_##suffix(const RuleSpan<T>&, const RuleNumbers&))        \
  /* The sum of squares in double, in an order that depends on the count alone. */           \
  LOCKSTEP_DECLARE_ISA(double sum_squares_##suffix(const T*, int64_t))

LOCKSTEP_RULE_KERNELS(float, float)
LOCKSTEP_RULE_KERNELS(double, double)

}  // namespace lockstep::parallel
