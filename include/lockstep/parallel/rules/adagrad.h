// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/rules/rule_number.h"

namespace lockstep::parallel {

/// A step of the gradient over the root of the sum of squares (Duchi, Hazan, Singer 2011).
struct Adagrad {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;

  static constexpr const char* name = "adagrad";
  static constexpr double usual_lr = 1e-2;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  double initial_state() const { return initial_accumulator_value; }
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const Adagrad&) const = default;
};

}  // namespace lockstep::parallel
