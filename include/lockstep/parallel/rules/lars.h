// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/rules/rule_number.h"

namespace lockstep::parallel {

/// SGD whose rate is scaled for each tensor by trust * |w| / (|g| + weight_decay * |w|) (You, Gitman, Ginsburg 2017).
/// Tensors of one dimension or none (biases, norms) take neither the scale nor the decay.
struct Lars {
  double lr = 1e-1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double trust = 1e-3;
  double eps = 1e-8;

  static constexpr const char* name = "lars";
  static constexpr double usual_lr = 0.1;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  double ratio(const TensorUpdate& update, const TensorNorms& norms) const;
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const Lars&) const = default;
};

}  // namespace lockstep::parallel
