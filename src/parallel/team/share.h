// SPDX-License-Identifier: Apache-2.0
// One network of all replicas: one storage of weights, leaves that alias it.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/parallel/replica.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// Makes the replicas' networks share their weights: [replica here], each one's own or all the same one.
std::unique_ptr<SharedNetwork> share_networks(const TeamState& team,
                                              std::vector<std::shared_ptr<torch::nn::Module>> networks,
                                              const ShareOptions& options);

/// Throws Error when a network has other parameters than when it was shared.
void check_unchanged(const SharedNetwork& network, int64_t member);

}  // namespace lockstep::parallel
