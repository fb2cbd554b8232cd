// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/detail/median.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

/// What steps took in several rounds.
class StepTimes {
 public:
  /// The round's own mean.
  double add_round(const TrialResult& result) {
    const auto timed =
        std::span(result.step_seconds).subspan(std::min<size_t>(warm_up_steps, result.step_seconds.size() - 1));
    seconds_.resize(timed.size());
    for (size_t step = 0; step < timed.size(); ++step) seconds_[step].push_back(timed[step]);
    return rounds_.emplace_back(std::reduce(timed.begin(), timed.end()) / static_cast<double>(timed.size()));
  }
  bool empty() const { return seconds_.empty(); }
  size_t steps() const { return seconds_.size(); }
  // Batches of clouds differ in size, but all numbers of devices do the same steps: each step counts, in the middle of
  // its rounds. A median over steps could be one batch's here and another's there.
  double mean() const {
    double sum = 0;
    for (const auto& rounds : seconds_) sum += median(rounds);
    return sum / static_cast<double>(seconds_.size());
  }
  // How many times these are the other's, in the middle of the rounds: from one to the next the machine changes by more
  // than within one.
  double over(const StepTimes& other) const {
    std::vector<double> ratios;
    for (size_t round = 0; round < rounds_.size(); ++round) ratios.push_back(rounds_[round] / other.rounds_[round]);
    return median(std::move(ratios));
  }

 private:
  std::vector<std::vector<double>> seconds_;  // [timed step][round]
  std::vector<double> rounds_;                // their means
};

/// The replicas of placements that are compared, so that all do the same work: as configured, or eight, or one for each
/// of the most devices.
inline int64_t same_replicas(const run::Config& config, int64_t most_devices, int64_t batch) {
  if (config.replicas > 0) return config.replicas;
  const auto most = std::bit_ceil(static_cast<uint64_t>(most_devices));
  return std::min<int64_t>(static_cast<int64_t>(std::max<uint64_t>(8, most)),
                           static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch))));
}

}  // namespace lockstep::trials
