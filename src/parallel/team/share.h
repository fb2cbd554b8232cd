// SPDX-License-Identifier: Apache-2.0
// One network of all replicas: one storage of weights, leaves that alias it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/replica.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// Makes the replicas' networks share their weights: [replica here], each one's own or all the same one.
std::unique_ptr<SharedNetwork> share_networks(const TeamState& team,
                                              std::vector<std::shared_ptr<torch::nn::Module>> networks,
                                              const ShareOptions& options);

/// Lets go of the weights that other parts of the network hold, on all replicas: they keep their sizes, read as NaN and
/// take no memory. Nobody computes meanwhile.
void keep_part(const SharedNetwork& network, const ProcessCut& cut, int64_t part);

/// The buffers of a network by name, after its parameters where these are asked for: those that this part saves, where
/// processes hold parts.
std::vector<std::pair<std::string, at::Tensor>> held_tensors(const TeamState& team, const torch::nn::Module& network,
                                                             bool parameters);

/// Throws Error when a network has other parameters than when it was shared.
void check_unchanged(const SharedNetwork& network, int64_t member);

}  // namespace lockstep::parallel
