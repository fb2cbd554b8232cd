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
  int64_t devices = 2;  ///< threads of one process; with rates, processes of a thread
  std::vector<std::string> splits{"data", "p2"};
  /// Networks between the processes: every split is compared over each ("100mbit"). They are hosts of their own,
  /// namespaces of this machine, for which the kernel asks for rights. None: threads.
  std::vector<std::string> rates{};
  int rounds = 3;
};

/// The options with all that nobody has set worked out. Throws Error for what makes no sense.
CompareOptions with_defaults(CompareOptions options);

/// What one way to divide a training over the devices costs.
struct CompareRow {
  std::string split{};
  std::string rate{};  ///< of the network between the devices; empty: they are threads of one process
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

/// Rates were asked for where the kernel or a missing program (ip, tc, unshare, nsenter) forbids such networks;
/// standard error says which.
class NetworkForbidden : public TrialFailed {
 public:
  static constexpr int code = 77;
  NetworkForbidden()
      : TrialFailed(code, "skipped: this machine allows no networks of namespaces, which --rate is for") {}
};

struct CompareResult {
  CompareRow one_device{};
  std::vector<CompareRow> rows{};  ///< one a split, or one for each rate and split
  int64_t steps = 0;               ///< that were timed, in each round
  bool identical = true;           ///< all hashes are
};

/// Trains the same recipe on one device and under each split, in rounds that take turns: medians over the rounds.
/// `on_round` gets each measurement. Throws Error, TrialFailed and NetworkForbidden. See trial.h for what main() must
/// do.
CompareResult compare(const CompareOptions& options,
                      const std::function<void(int round, const CompareRow&)>& on_round = {});

}  // namespace lockstep::trials
