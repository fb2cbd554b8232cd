// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/split.h"
#include "lockstep/run/config.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

/// Where replicas run, in words: `4` (threads of one process), `2x4` (processes of threads), `3+3+2` (processes of so
/// many replicas, a thread each). Behind a colon what the threads divide besides the batch: `4:p2` (two parts of the
/// network, of which there are two copies each).
struct PlacementText {
  std::string text;
  int processes = 1;
  int64_t threads = 1;
  std::vector<int64_t> blocks{};
  parallel::Split split{};
};

/// Of words such as "1;2;2x4". Throws Error, naming the part, for anything else, and for blocks that don't add up to
/// the replicas.
std::vector<PlacementText> parse_placements(const std::string& text, int64_t replicas);

/// One thread, two, one a replica, and, where `processes` can be joined, two alike and three that differ in size: for 8
/// replicas "1;2;8;2x4;3+3+2".
std::string usual_placements(int64_t replicas, bool processes);

/// What differs first between two trials: the step (from 1) and the tensor. Empty where nothing does.
struct Difference {
  size_t step = 0;
  std::string tensor;
};
std::optional<Difference> first_difference(const TrialResult& a, const TrialResult& b);

struct VerifyOptions {
  run::Config config{};
  /// The names of values of the configuration that count as set although they are the usual ones.
  std::vector<std::string> given{};
  std::string placements{};  ///< empty: usual_placements
};

/// The options with all that nobody has set worked out: 20 steps, 8 replicas, a small batch, the usual placements.
/// Throws Error for what makes no sense.
VerifyOptions with_defaults(VerifyOptions options);

/// One placement.
struct VerifyRow {
  std::string placement;
  double seconds_per_step = 0;                ///< the median
  std::optional<Difference> difference = {};  ///< from the first placement
};

struct VerifyResult {
  std::vector<VerifyRow> rows;
  bool identical = true;
};

/// Trains the same recipe under each placement and compares every tensor after every step. `on_row` gets each row when
/// its training has ended. Throws Error and TrialFailed. See trial.h for what main() must do.
VerifyResult verify(const VerifyOptions& options, const std::function<void(const VerifyRow&)>& on_row = {});

}  // namespace lockstep::trials
