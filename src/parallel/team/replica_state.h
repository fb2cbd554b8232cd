// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/context/detail/context.h"
#include "lockstep/context/draws.h"
#include "lockstep/norm/detail/after_step.h"
#include "lockstep/parallel/replica.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

class Keeping;

struct Replica::State {
  std::shared_ptr<TeamState> team;
  int64_t member;
  CrewPeers peers;
  Draws* draws;  // this replica's, of which the caller's code may open others inside
  int64_t steps = 0;
  int64_t watch_every = 0;
  bool watch_buffers = false;
  Keeping* keeping = nullptr;  // where this process's copy is, in work that survives a loss
  bool keeps = false;          // keep() has been called
  /// Until the first step has ended: where processes hold parts, weights wait for their values.
  std::optional<UnfilledWeights::Scope> waiting{};

  Timeline& timeline() const { return team->timelines[member]; }
  /// Batch norms' statistics, which waited for the others until all had gone through their passes.
  void end_waiting() { Context::current().after_step->run(peers); }
};

}  // namespace lockstep::parallel
