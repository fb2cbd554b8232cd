// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <variant>

namespace lockstep::parallel {

/// One of a rule's numbers: where it lies in the rule that was asked, and which values of it make sense.
struct RuleNumber {
  const char* name;
  std::variant<double*, bool*> place;
  double from = 0;
  double below = std::numeric_limits<double>::infinity();  // exclusive
};

// What an optimiser gives a rule to work on: inside the library.
struct TensorUpdate;
struct TensorNorms;
struct RuleSlice;

}  // namespace lockstep::parallel
