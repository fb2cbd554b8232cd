// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/run/config.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

struct CompareOptions {
  run::Config config{};
  /// The names of values of the configuration that count as set although they are the usual ones.
  std::vector<std::string> given{};
  int64_t devices = 2;  ///< threads of one process
  std::vector<std::string> splits{"data", "p2"};
  int rounds = 3;
};

/// The options with all that nobody has set worked out. Throws Error for what makes no sense.
CompareOptions with_defaults(CompareOptions options);

/// What one way to divide a training over the devices costs.
struct CompareRow {
  std::string split{};
  int64_t devices = 1;
  double seconds_per_step = 0;
  double speedup = 1;        ///< over one device
  int64_t bytes_sent = 0;    ///< in a step, by the process that sends most
  double bubble = 0;         ///< share of the devices' time: TracedStep::bubble
  double waiting = 0;        ///< for the other devices or for data, beside that
  double communication = 0;  ///< bringing and adding up what other devices need
  double peak_mib = 0;       ///< of memory, of the process that needs most
  std::string hash{};        ///< of the weights
  std::string why{};         ///< where the split is "auto": what was chosen, and why
  TracedStep step{};         ///< one of the last round
};

struct CompareResult {
  CompareRow one_device{};
  std::vector<CompareRow> rows{};  ///< one a split
  int64_t steps = 0;               ///< that were timed, in each round
  bool identical = true;           ///< all hashes are
};

/// Trains the same recipe on one device and under each split, in rounds that take turns: medians over the rounds.
/// `on_round` gets each measurement. Throws Error and TrialFailed. See trial.h for what main() must do.
CompareResult compare(const CompareOptions& options,
                      const std::function<void(int round, const CompareRow&)>& on_round = {});

}  // namespace lockstep::trials
