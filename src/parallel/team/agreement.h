// SPDX-License-Identifier: Apache-2.0
// Checks that processes were called alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/parallel/detail/broadcast_text.h"
#include "lockstep/parallel/optimizer.h"
#include "parallel/optim/optimizer_state.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// What processes must have been told alike, in words, a fact a line.
using Facts = std::vector<std::string>;

/// Collective over the processes. Throws Error on all of them, with the first fact that differs, where one brings
/// others than process 0.
void agree(const TeamState& team, const char* operation, const Facts& mine);

/// Collective over the processes. Bytes that one of them has.
at::Tensor broadcast_bytes(const TeamState& team, at::Tensor bytes, int64_t from);

Facts facts_of(const TeamState& team);
Facts facts_of(const torch::nn::Module& network, at::MemoryFormat format);
Facts facts_of(std::span<const OptimizedParameter> parameters, std::span<const Rule> rules,
               const OptimizerOptions& options);

}  // namespace lockstep::parallel
