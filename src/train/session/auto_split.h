// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "lockstep/comm/group.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/classifier.h"
#include "lockstep/run/config.h"
#include "lockstep/train/evaluation.h"

namespace lockstep::train {

/// Whether a configuration's split is "auto", or "auto:2GiB" with the most that replicas in flight may keep in memory.
bool is_auto_split(const std::string& split);

/// Process 0 measures this network on one replica's share of the first batch, and chooses for all: the split, and why,
/// in lines for people. `threads`: of this process. Collective. Throws Error where the network can't be cut or the text
/// is no such split.
std::pair<std::string, std::string> choose_split(const std::string& text, models::Classifier& network,
                                                 const std::function<data::Batch()>& first_batch,
                                                 const run::Config& config, Precision precision, int64_t threads,
                                                 const comm::Group& group);

}  // namespace lockstep::train
