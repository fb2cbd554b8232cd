// SPDX-License-Identifier: Apache-2.0
// Which parameters an optimiser takes, and which have none yet.
#pragma once

#include <span>
#include <vector>

#include "parallel/optim/optimizer_state.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// The parameters of this member's networks that require a gradient and have no optimiser yet.
std::vector<at::Tensor> parameters_without_optimizer(const TeamState& team, int64_t member);

/// Takes the parameters of the groups, [replica here], for one optimiser. Throws Error where a tensor is no parameter
/// of a shared network, has an optimiser already, or the replicas' groups differ.
std::vector<OptimizedParameter> take_parameters(const TeamState& team,
                                                std::span<const std::vector<ParameterGroup>* const> groups);

}  // namespace lockstep::parallel
