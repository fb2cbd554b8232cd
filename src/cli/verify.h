// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/config_options.h"
#include "cli/trial.h"

namespace lockstep::cli {

/// Where replicas run, as `--placements` spells it: `4` (threads of one process), `2x4` (processes of threads),
/// `3+3+2` (processes of so many replicas, a thread each).
struct PlacementText {
  std::string text;
  int processes = 1;
  int64_t threads = 1;
  std::vector<int64_t> blocks{};
};

/// Throws Error, naming the part, for anything else, and for blocks that don't add up to the replicas.
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
  ConfigOptions config;
  std::string placements{};  ///< empty: usual_placements
};

/// `lockstep verify MODEL`: trains under each placement. 0 where all end in the same bits, else 1.
void setup_verify(CLI::App& app, Command& chosen);
int verify(const VerifyOptions& options);

}  // namespace lockstep::cli
