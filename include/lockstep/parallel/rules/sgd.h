// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/rules/rule_number.h"

namespace lockstep::parallel {

/// Stochastic gradient descent, with momentum where it is not 0.
struct Sgd {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;

  static constexpr const char* name = "sgd";
  static constexpr double usual_lr = 0.1;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  void check() const;
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const Sgd&) const = default;
};

}  // namespace lockstep::parallel
