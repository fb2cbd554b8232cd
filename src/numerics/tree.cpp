// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/tree.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

bool are_siblings(int64_t leaves, Interval left, Interval right) {
  if (left.end != right.begin) return false;
  const int64_t width = left.size();
  // A left child is full (a power of two wide) and starts where its parent does.
  if ((width & (width - 1)) != 0 || left.begin % (2 * width) != 0) return false;
  return right.end == std::min(right.begin + width, leaves);
}

std::vector<Interval> block_nodes(int64_t leaves, Interval block) {
  require(0 <= block.begin && block.begin <= block.end && block.end <= leaves, "block_nodes", "block is [", block.begin,
          ", ", block.end, "), expected a part of [0, ", leaves, ")");
  struct Nothing {};
  auto merge = [](Nothing&, Nothing&&) {};
  TreeAccumulator<Nothing, decltype(merge)> accumulator(leaves, merge);
  for (int64_t leaf = block.begin; leaf < block.end; ++leaf) accumulator.push({leaf, leaf + 1}, Nothing{});
  std::vector<Interval> nodes;
  for (const auto& entry : accumulator.entries()) nodes.push_back(entry.interval);
  return nodes;
}

Placement::Placement(const std::vector<int64_t>& counts) {
  for (int64_t count : counts) {
    require(count >= 0, "Placement", "a process has ", count, " replicas, expected 0 or more");
    begins_.push_back(begins_.back() + count);
  }
}

Placement Placement::even(int64_t replicas, int64_t processes) {
  require(replicas >= 0 && processes >= 1, "Placement", "got ", replicas, " replicas on ", processes,
          " processes, expected 0 or more on at least 1");
  std::vector<int64_t> counts(processes, replicas / processes);
  for (int64_t p = 0; p < replicas % processes; ++p) ++counts[p];
  return Placement(counts);
}

int64_t Placement::process_of(int64_t replica) const {
  require(0 <= replica && replica < replicas(), "Placement", "replica ", replica, " of ", replicas());
  return std::upper_bound(begins_.begin(), begins_.end(), replica) - begins_.begin() - 1;
}

}  // namespace lockstep
