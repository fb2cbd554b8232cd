// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/rules/rule_number.h"

namespace lockstep::parallel {

/// Adam whose step u (weight decay included) is scaled for each tensor by |w| / |u| (You et al. 2019). Tensors of one
/// dimension or none take neither the scale nor the decay.
struct Lamb {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 1e-2;

  static constexpr const char* name = "lamb";
  static constexpr double usual_lr = 1e-3;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  void prepare(const TensorUpdate& update, const RuleSlice& slice) const;
  double ratio(const TensorUpdate& update, const TensorNorms& norms) const;
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const Lamb&) const = default;
};

}  // namespace lockstep::parallel
