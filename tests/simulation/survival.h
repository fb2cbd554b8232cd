// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/world/network.h"

namespace lockstep::simulation {

/// A training that goes on without the processes that it loses, under a launcher as `lockstep run --survive` is one.
struct SurvivalPlan {
  int processes = 3;
  bool respawns = false;
  bool own_loop = false;  // run_surviving() in place of a trainer
  bool batch_norm = false;
  bool parts = false;  // of the network, in processes of their own
  bool reads_late = false;
  int64_t copy_every = 2;
  std::vector<Fault> faults;
};
SurvivalPlan survival_plan_of(uint64_t seed);
std::string to_text(const SurvivalPlan& plan);

struct SurvivalResult {
  std::string hash;       // of the process that leads at the end
  std::string complaint;  // what should not have been
  int generations = 0;
  int lost = 0;
  int joined = 0;
  Time when = 0;
};
SurvivalResult survive(uint64_t seed, const SurvivalPlan& plan);

/// What the same training gives in one process to which nothing happens.
std::string undisturbed(const SurvivalPlan& plan);

}  // namespace lockstep::simulation
