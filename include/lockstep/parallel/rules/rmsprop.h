// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/rules/rule_number.h"

namespace lockstep::parallel {

/// A step of the gradient over the root of the mean square (Hinton 2012), with momentum where it is not 0.
struct RmsProp {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;

  static constexpr const char* name = "rmsprop";
  static constexpr double usual_lr = 1e-2;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const RmsProp&) const = default;
};

}  // namespace lockstep::parallel
