// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/rules/rule_number.h"

namespace lockstep::parallel {

/// A step of the mean gradient over the root of the mean square (Kingma, Ba 2014).
struct Adam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;

  static constexpr const char* name = "adam";
  static constexpr double usual_lr = 1e-3;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const Adam&) const = default;
};

/// Adam whose weight decay does not pass through the moments.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;

  static constexpr const char* name = "adamw";
  static constexpr double usual_lr = 1e-3;
  std::vector<RuleNumber> numbers();
  std::vector<std::string> state_names() const;
  void apply(const TensorUpdate& update, const RuleSlice& slice) const;
  bool operator==(const AdamW&) const = default;
};

}  // namespace lockstep::parallel
