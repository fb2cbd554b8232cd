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

}  // namespace lockstep
