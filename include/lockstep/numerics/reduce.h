// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/numerics/tree.h"

namespace lockstep {

/// How contributions are combined. On bool: sum and max are "or", min is "and". Mean needs a floating-point dtype.
/// A NaN in any contribution gives a NaN.
enum class ReduceOp : uint8_t { sum, mean, min, max };

const char* name_of(ReduceOp op);

/// The canonical tree as a stack program: sources are pushed from left to right, and after source k the two topmost
/// values are merged `merges()[k]` times.
class TreeProgram {
 public:
  /// Sources are the R leaves themselves.
  static TreeProgram of_leaves(int64_t leaves) { return of_block(leaves, {0, leaves}); }
  /// Sources are the leaves of one block; the results are the block's maximal nodes.
  static TreeProgram of_block(int64_t leaves, Interval block);
  /// Sources are nodes of the tree, from left to right, as blocks contributed them.
  static TreeProgram of_nodes(int64_t leaves, std::span<const Interval> nodes);

  int64_t sources() const { return static_cast<int64_t>(merges_.size()); }
  std::span<const uint8_t> merges() const { return merges_; }
  /// What is left on the stack: one root, or the maximal nodes of a block.
  const std::vector<Interval>& results() const { return results_; }
  int64_t depth() const { return depth_; }

 private:
  std::vector<uint8_t> merges_;
  std::vector<Interval> results_;
  int64_t depth_ = 0;  // the most values that are on the stack at once
};

/// Whether `reduce` knows this dtype: float32, float64, float16, bfloat16, int32, int64, bool (and uint8, as bool's
/// storage).
bool is_reducible(c10::ScalarType dtype);

/// Combines `sources` element by element in the program's order and writes the result. Where the program ends in one
/// result, every destination receives it; else destination k receives result k. A destination may be one of the
/// sources, but may not overlap one in any other way. Every addition is rounded to `dtype` (float16 and bfloat16 too,
/// so that a partial sum means the same in memory as on a wire); nothing is fused. The result is divided by `divisor`
/// for ReduceOp::mean. Runs on the calling thread, at the speed of memory.
void reduce(const TreeProgram& program, ReduceOp op, c10::ScalarType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, int64_t count, int64_t divisor = 1);

}  // namespace lockstep
