// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/run/metrics.h"
#include "lockstep/train/trainer.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

/// Where the time of a training's steps goes, without the first ones, which warm up.
class StepPhases {
 public:
  void add(const train::StepReport& report) {
    if (++seen_ > warm_up_steps + 1) sum_ += report.phases;  // they are of the step before
  }

  /// Of a step; none where too few were made.
  std::optional<run::Phases> mean() const {
    const int64_t steps = seen_ - warm_up_steps - 1;
    if (steps < 1) return std::nullopt;
    run::Phases mean = sum_;
    return mean /= static_cast<double>(steps);
  }

 private:
  int64_t seen_ = 0;
  run::Phases sum_;
};

}  // namespace lockstep::trials
