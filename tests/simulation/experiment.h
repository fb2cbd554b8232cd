// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "simulation/training.h"
#include "simulation/world/network.h"

namespace lockstep::simulation {

/// What a seed stands for: a recipe, a placement, and what happens meanwhile.
struct Plan {
  Recipe recipe;
  int processes = 2;
  std::vector<int64_t> blocks;
  int devices = 1;  // of each process
  bool reads_late = false;
  std::vector<Fault> faults;
};
Plan plan_of(uint64_t seed);
std::string to_text(const Plan& plan);

/// How one process ended.
struct Ending {
  std::string hash;   // where it came to the end
  std::string error;  // else
  int named = -1;     // the rank that the error names
  bool is_comm_error = false;
  Time when = 0;
};

struct Result {
  std::vector<Ending> endings;
  std::set<int> dead, stalled;
  uint64_t trace = 0;
  int64_t messages = 0;
};
Result run(uint64_t seed, const Plan& plan);

/// What the promise of the project says of this result: empty where it is kept.
std::string complaint(const Plan& plan, const Result& result, const std::string& expected);

/// How long a group of a simulation waits.
inline constexpr std::chrono::milliseconds kTimeout{30000};

}  // namespace lockstep::simulation
