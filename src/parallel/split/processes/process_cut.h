// SPDX-License-Identifier: Apache-2.0
// Where a network is cut whose parts are processes, and what each of them holds.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/stages.h"

namespace lockstep::parallel {

struct ProcessCut {
  /// The owner of what several parts use, or none: all of them hold it, and part 0 speaks for it.
  static constexpr int64_t kAll = -1;

  std::vector<int64_t> first{};       // stage of each part
  std::vector<int64_t> parameters{};  // the part that holds each, tied ones once
  std::vector<int64_t> buffers{};

  /// Whether `part` holds what this part owns, and whether it is the one to save it.
  static bool holds(int64_t part, int64_t owner) { return owner == part || owner == kAll; }
  static bool saves(int64_t part, int64_t owner) { return owner == part || (owner == kAll && part == 0); }

  std::string to_text() const;
  static ProcessCut from_text(const std::string& text);
};

/// Cuts the network for so many parts by the time that its stages take on the bundle, and by what would cross, with the
/// seconds that a byte takes from each part to the next one. Throws Error where it can't be cut so often: between
/// stages that share weights it can't be, nor where anything but tensors is handed on.
ProcessCut cut_for_processes(torch::nn::Module& network, const std::vector<at::Tensor>& parameters,
                             const Bundle& bundle, const std::vector<double>& seconds_a_byte,
                             UnfilledWeights& unfilled);

}  // namespace lockstep::parallel
