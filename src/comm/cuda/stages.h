// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::comm {

/// A part of a reduction that one launch of a kernel does. It begins with what the part before has left on the stack,
/// and so adds in the same order as one launch for all would.
struct ReduceStage {
  int64_t first;  ///< of the sources that are new here
  int64_t count;
  int64_t carried;  ///< values on the stack before
  int64_t left;     ///< and after
};

/// Cuts a stack program (numerics/reduce.h) into stages of at most `most` sources, those that are carried included.
inline std::vector<ReduceStage> stages_of(std::span<const uint8_t> merges, int64_t most) {
  std::vector<ReduceStage> stages;
  int64_t depth = 0;
  for (int64_t at = 0; at < std::ssize(merges);) {
    ReduceStage stage{at, std::min(std::ssize(merges) - at, most - depth), depth, depth};
    for (const int64_t end = at + stage.count; at < end; ++at) stage.left += 1 - merges[at];
    depth = stage.left;
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace lockstep::comm
