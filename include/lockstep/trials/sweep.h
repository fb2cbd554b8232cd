// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/run/config.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

struct SweepOptions {
  run::Config config{};  ///< its batch is that of one device
  std::vector<double> rates{0.05, 0.1, 0.2, 0.4};
  std::vector<int64_t> devices{1, 2};
  bool fixed_batch = false;  ///< the same batch for all numbers of devices, instead of one that grows with them
};

/// The options with all that nobody has set worked out. Throws Error for what makes no sense.
SweepOptions with_defaults(SweepOptions options);

/// One learning rate on one number of devices.
struct SweepRow {
  int64_t devices = 0;
  double lr = 0;
  std::optional<TrialResult> result{};  ///< none of a training that failed: its loss may have become infinite
};

/// Trains and evaluates with each learning rate on each number of devices. `on_row` gets each row when its training has
/// ended. Throws Error, and TrialFailed where a trial ends with another exit code than 1. See trial.h for what main()
/// must do.
std::vector<SweepRow> sweep(const SweepOptions& options, const std::function<void(const SweepRow&)>& on_row = {});

}  // namespace lockstep::trials
