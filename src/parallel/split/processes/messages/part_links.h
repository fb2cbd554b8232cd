// SPDX-License-Identifier: Apache-2.0
// Processes that are parts of a network, and what lies between them.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// Which part of the network a process is, of which copy.
struct PartPlace {
  int64_t parts = 1;
  int64_t part = 0;
  int64_t copy = 0;

  bool is_last() const { return part + 1 == parts; }
  int rank_of(int64_t other) const { return static_cast<int>(copy * parts + other); }
};

/// Collective over the messages' group. Each part of the first copy sends some bytes to the next one, which sends them
/// back: process 0 is told the seconds that a byte takes on each of these links.
std::vector<double> measure_links(const comm::Group& messages, const PartPlace& place, int tag);

}  // namespace lockstep::parallel
