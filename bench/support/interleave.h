// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "lockstep/base/detail/median.h"

namespace lockstep::bench {

/// Runs the contenders in turn, A B C A B C ..., so that a machine whose speed drifts treats them alike: row c holds
/// the seconds of contender c, one a round. `measure` returns seconds per operation. One round before is not counted.
inline std::vector<std::vector<double>> interleave(int rounds, const std::vector<std::function<double()>>& contenders) {
  std::vector<std::vector<double>> seconds(contenders.size());
  for (int round = -1; round < rounds; ++round)
    for (size_t c = 0; c < contenders.size(); ++c) {
      const double value = contenders[c]();
      if (round >= 0) seconds[c].push_back(value);
    }
  return seconds;
}

/// The median over rounds of a / b.
inline double ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(std::move(ratios));
}

}  // namespace lockstep::bench
