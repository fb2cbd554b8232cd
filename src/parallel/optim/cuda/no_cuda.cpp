// SPDX-License-Identifier: Apache-2.0
// Stands in for rules.cu in a build without CUDA.
#include "lockstep/base/error.h"
#include "parallel/optim/rules/rule_batch.h"

namespace lockstep::parallel::on_gpu {

bool batches(c10::Device) {
  return false;
}

#define LOCKSTEP_NO_RULE(name, ...)              \
  void name(const RuleTable& __VA_ARGS__) {      \
    LOCKSTEP_ASSERT(!"no batches without CUDA"); \
  }
#define LOCKSTEP_NO_RULES(name)  \
  LOCKSTEP_NO_RULE(name##_float) \
  LOCKSTEP_NO_RULE(name##_double)

LOCKSTEP_NO_RULES(adagrad)
LOCKSTEP_NO_RULES(adam)
LOCKSTEP_NO_RULES(lamb_direction)
LOCKSTEP_NO_RULES(lamb_step)
LOCKSTEP_NO_RULES(rmsprop)
LOCKSTEP_NO_RULES(sgd)
LOCKSTEP_NO_RULE(squares_float, , double*, double*)
LOCKSTEP_NO_RULE(squares_double, , double*, double*)

}  // namespace lockstep::parallel::on_gpu
