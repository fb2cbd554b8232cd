// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/numerics/placement.h"

namespace lockstep::comm {

/// Which messages the canonical sum over a placement's replicas sends, one process a rank (transport/algorithms.h). The
/// sum itself follows it, and so does a forecast of its time.
///
/// Each process holds the maximal nodes of its block. A tensor is cut into pieces, a piece into slices, one a rank. A
/// rank gets all processes' nodes of its slice, adds them up and returns the sum to all. Small tensors go in one round:
/// everybody gets everything and adds it up for himself.
///
/// Where many processes have a node each, all of one size, they meet by halves: in round k a rank and its partner, the
/// one at distance 2^k, exchange halves of what they still have and add, as two nodes make their parent. Then each has
/// the sum of a slice, and it goes back the same way. The sums are the same, and a rank sends 2 log2 P messages in
/// place of 2 (P - 1). Of a small tensor partners exchange all, and nothing goes back.
class CanonicalPlan {
 public:
  /// `may_halve`: false only to compare.
  CanonicalPlan(const Placement& placement, int64_t numel, int64_t element_bytes, bool may_halve = true);

  bool is_small() const { return small_; }
  bool meets_by_halves() const { return rounds_ > 0; }
  int64_t rounds() const { return rounds_; }
  static int64_t partner(int64_t rank, int64_t round) { return rank ^ (int64_t{1} << round); }
  /// The part of the flat tensor that a rank still has before a round, and after the last one.
  Interval kept(int64_t rank, int64_t round) const;
  int64_t ranks() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t pieces() const { return small_ ? 1 : (numel_ + step_ - 1) / step_; }
  /// Of a piece, the part of the flat tensor that each rank owns; all of it where the tensor is small.
  std::vector<Interval> slices(int64_t piece) const;
  /// How many nodes a rank's process contributes, and all of them from left to right.
  int64_t nodes_of(int64_t rank) const { return nodes_[rank]; }
  const std::vector<Interval>& nodes() const { return all_; }

  /// What a rank sends in all.
  int64_t bytes_sent(int64_t rank) const;

 private:
  int64_t numel_;
  int64_t element_bytes_;
  bool small_;
  int64_t align_;  // elements
  int64_t step_;
  int64_t rounds_ = 0;  // by halves
  std::vector<int64_t> nodes_;
  std::vector<Interval> all_;
};

}  // namespace lockstep::comm
