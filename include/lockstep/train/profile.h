// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/parallel/forecast.h"
#include "lockstep/run/config.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

/// What one replica's pass through a network costs, and what is known of the training without running it.
struct PassProfile {
  parallel::StepCost cost{};  ///< of replica 0's share of the first batch: stages and gradients
  bool has_stages = true;     ///< false: the network can't be cut, and is one stage
  int64_t examples = 0;       ///< of the training set
  int64_t updates = 0;        ///< of the whole training
  int64_t states = 0;         ///< tensors that the update rule keeps for each weight
  int64_t buffers_bytes = 0;  ///< of the network, beside its weights
};

/// Measures in this process, on one thread: medians over some passes. For a process without other threads that
/// compute. Throws Error as Trainer does.
PassProfile profile_passes(const run::Config& config, const Task& task);

/// What each replica's share of the coming batches costs, [batch][replica] (data/share_costs.h): `batch` and `replicas`
/// in place of the configuration's.
std::vector<std::vector<int64_t>> coming_shares(const run::Config& config, const Task& task, int64_t batch,
                                                int64_t replicas, int64_t batches);

}  // namespace lockstep::train
