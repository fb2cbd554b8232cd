// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::parallel {

/// How the devices of a team divide a network. It belongs to the placement, and changes no bit.
struct Split {
  /// The parts that the network is cut into, between stages (context/stages.h). Each has devices of its own, and
  /// replicas go through them one behind another, as micro-batches do in a pipeline. 1: every device computes whole
  /// networks.
  int64_t parts = 1;
  /// The devices that share the slices of each layer (TeamOptions::slices). 1: a device computes all slices.
  int64_t sharers = 1;
  bool operator==(const Split&) const = default;
};

/// Whether each part is a process, as the threads of a process are too few for all parts.
bool parts_are_processes(const Split& split, int64_t processes, int64_t threads);

/// "data", "p2", "t2", "p2t2", ...
std::string to_string(const Split& split);
/// The inverse of to_string; "p1" and "t1" are "data". Throws Error on any other text.
Split parse_split(const std::string& text);

}  // namespace lockstep::parallel
