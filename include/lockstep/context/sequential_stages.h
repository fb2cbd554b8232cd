// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <string>
#include <vector>

#include "lockstep/context/stages.h"

namespace lockstep {

/// A stage for each module of a sequence, under the module's name behind `prefix`. The modules take a tensor and give
/// one. They refer to the sequence, which outlives them.
std::vector<Stage> stages_of(torch::nn::SequentialImpl& modules, const std::string& prefix = "");

}  // namespace lockstep
