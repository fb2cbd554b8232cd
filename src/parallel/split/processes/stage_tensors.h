// SPDX-License-Identifier: Apache-2.0
// What a network's stages take and use.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/nn/module.h>

#include <set>
#include <string>
#include <vector>

#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/stages.h"

namespace lockstep::parallel {

/// One stage, as it was seen at work.
struct StageLook {
  std::string name;
  double seconds = 0;                          // forwards and backwards
  int64_t crossing_bytes = 0;                  // where the next one is in another process: what goes and comes back
  std::set<const c10::TensorImpl*> tensors{};  // whatever it used: parameters and buffers are among them
  std::string other{};  // a value that it hands on, of a type that does not cross to other processes
};

/// Runs the network's stages on the bundle in eval mode, forwards and backwards, and looks on. Nothing of the network
/// changes, no replica is waited for and no random number is taken. Weights that wait for their values are filled for
/// the time of the stage that uses them.
std::vector<StageLook> look_at_stages(torch::nn::Module& network, const Bundle& bundle, UnfilledWeights& unfilled);

}  // namespace lockstep::parallel
