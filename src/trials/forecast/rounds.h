// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/run/metrics.h"
#include "lockstep/trials/profile.h"
#include "trials/step_times.h"

namespace lockstep::trials {

/// A standard deviation, as a part of the mean.
double deviation(std::span<const double> values);

/// How far a trial's steps without the first ones differ: a standard deviation as a part of the usual step, from the
/// middle of the distances, as a few steps that something else held up are no rule. A trial averages two neighbours,
/// which makes it smaller by a root of two.
inline double jitter_of(std::span<const double> steps) {
  constexpr double kNormal = 1.4826;  // deviation over the middle distance
  if (steps.size() <= warm_up_steps) return 0;
  std::vector<double> timed(steps.begin() + warm_up_steps, steps.end());
  const double usual = median(timed);
  for (double& step : timed) step = std::abs(step - usual);
  return std::numbers::sqrt2 * kNormal * median(std::move(timed)) / usual;
}

/// What rounds of one way to run have measured.
struct Rounds {
  StepTimes times{};
  std::vector<run::Phases> phases{};  // of those that know them
  std::vector<double> seconds{}, peaks{};
  std::vector<double> last_steps{};  // of the last round
  std::vector<double> jitters{};

  /// The round's seconds a step.
  double add(const TrialResult& result) {
    seconds.push_back(times.add_round(result));
    peaks.push_back(result.peak_mib);
    last_steps = result.step_seconds;
    jitters.push_back(jitter_of(last_steps));
    if (result.phases) phases.push_back(*result.phases);
    return seconds.back();
  }

  /// The middle of each phase, as long in all as a step was.
  run::Phases middle() const {
    run::Phases out;
    for (const auto& [name, member] : run::phase_members) {
      std::vector<double> all;
      for (const run::Phases& one : phases) all.push_back(one.*member);
      out.*member = all.empty() ? 0 : median(std::move(all));
    }
    require(out.sum() > 0, "forecast", "the steps were too few to tell where their time went, expected ",
            warm_up_steps + 3, " or more: --profile-steps");
    out /= out.sum() / times.mean();
    return out;
  }
};

/// What a profile is made of, of a configuration's batch and replicas.
struct Measurements {
  Rounds one{};      // one device
  Rounds apart{};    // as many trainings at once as there are cores; or none
  Rounds threads{};  // one training on a thread a core; or none

  /// One round on all cores; says what it found.
  std::string add_crowded(const run::Config& config);
};

/// Measures passes, in a process of their own.
Profile make_profile(const run::Config& config, const Measurements& measured);

}  // namespace lockstep::trials
