// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/run/config.h"
#include "lockstep/run/run_files.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

struct SpeedupOptions {
  run::Config config{};
  /// The names of values of the configuration that count as set although they are the usual ones.
  std::vector<std::string> given{};
  std::vector<int64_t> batches{};  ///< of all devices together; empty: the usual one
  std::vector<int64_t> devices{1, 2};
  int rounds = 3;
  /// Also as many trainings as devices at once, a device each and nothing in common: what the machine gives.
  bool apart = false;
};

/// The options with all that nobody has set worked out. Throws Error for what makes no sense.
SpeedupOptions with_defaults(SpeedupOptions options);

/// What one round has measured of one batch size and number of devices.
struct SpeedupRound {
  int round = 1;
  int64_t batch = 0;
  int64_t devices = 0;
  double seconds_per_step = 0;
  std::optional<double> seconds_per_step_apart{};
};

struct SpeedupResult {
  std::vector<run::SpeedupRow> rows;  ///< by batch size, then by number of devices
  /// What a forecast from one device says of each row (forecast.h), in seconds; none where it was no threads of a CPU
  /// or one device was not measured.
  std::vector<std::optional<double>> forecasts;
  std::string no_forecast{};  ///< why there are none; empty: there are
  int64_t steps = 0;          ///< that were timed, in each round
};

/// Times a step on numbers of devices, in rounds that take turns, and says where its time goes: medians over the
/// rounds. `on_round` gets each measurement when it is there. Throws Error and TrialFailed. See trial.h for what main()
/// must do.
SpeedupResult speedup(const SpeedupOptions& options, const std::function<void(const SpeedupRound&)>& on_round = {});

}  // namespace lockstep::trials
