// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/detail/canonical_plan.h"

#include <algorithm>
#include <bit>

#include "lockstep/numerics/tree.h"

namespace lockstep::comm {
namespace {

// Up to here one round of everything to everybody beats two rounds of slices.
constexpr int64_t kSmallBytes = 8 << 10;
// What one rank owns of a piece: large enough for a message to run at full speed, small enough to overlap.
constexpr int64_t kWireSliceBytes = 1 << 20;
// Slices begin at multiples of this, so that vector tails fall in the same places everywhere.
constexpr int64_t kAlignBytes = 64;
// From so many processes on, messages are what a sum costs (docs/inside/scale.md).
constexpr int64_t kLeastByHalves = 16;

// Whether all of them hold a node each, of one size: then neighbours at any distance 2^k are siblings or make them.
bool are_alike(const std::vector<Interval>& nodes, int64_t ranks, int64_t replicas) {
  if (static_cast<int64_t>(nodes.size()) != ranks || replicas % ranks != 0) return false;
  const auto width = static_cast<uint64_t>(replicas / ranks);
  return std::has_single_bit(static_cast<uint64_t>(ranks)) && std::has_single_bit(width) &&
         std::ranges::all_of(nodes, [&](Interval node) { return node.size() == static_cast<int64_t>(width); });
}

}  // namespace

CanonicalPlan::CanonicalPlan(const Placement& placement, int64_t numel, int64_t element_bytes, bool may_halve)
    : numel_(numel),
      element_bytes_(element_bytes),
      small_(numel * element_bytes <= kSmallBytes),
      align_(kAlignBytes / element_bytes),
      step_(kWireSliceBytes / element_bytes * placement.processes()) {
  for (int64_t p = 0; p < placement.processes(); ++p) {
    const auto mine = block_nodes(placement.replicas(), placement.block(p));
    nodes_.push_back(static_cast<int64_t>(mine.size()));
    all_.insert(all_.end(), mine.begin(), mine.end());
  }
  if (may_halve && ranks() >= kLeastByHalves && are_alike(all_, ranks(), placement.replicas()))
    rounds_ = std::bit_width(static_cast<uint64_t>(ranks())) - 1;
}

Interval CanonicalPlan::kept(int64_t rank, int64_t round) const {
  Interval kept{0, numel_};
  for (int64_t r = 0; !small_ && r < round; ++r) {
    const int64_t half = (kept.size() + 2 * align_ - 1) / (2 * align_) * align_;
    const int64_t middle = std::min(kept.end, kept.begin + half);
    ((rank >> r) & 1 ? kept.begin : kept.end) = middle;
  }
  return kept;
}

std::vector<Interval> CanonicalPlan::slices(int64_t piece) const {
  if (small_) return std::vector<Interval>(nodes_.size(), {0, numel_});
  const int64_t at = piece * step_, length = std::min(step_, numel_ - at);
  const int64_t each = (length + ranks() * align_ - 1) / (ranks() * align_) * align_;
  std::vector<Interval> slices;
  for (int64_t r = 0; r < ranks(); ++r)
    slices.push_back({at + std::min(length, r * each), at + std::min(length, (r + 1) * each)});
  return slices;
}

int64_t CanonicalPlan::bytes_sent(int64_t rank) const {
  if (meets_by_halves()) {
    int64_t elements = 0;
    for (int64_t round = 0; round < rounds_; ++round)
      elements += small_ ? numel_ : kept(partner(rank, round), round + 1).size() + kept(rank, round + 1).size();
    return elements * element_bytes_;
  }
  if (small_) return (ranks() - 1) * nodes_[rank] * numel_ * element_bytes_;
  int64_t elements = 0;
  for (int64_t piece = 0; piece < pieces(); ++piece) {
    const auto all = slices(piece);
    for (int64_t r = 0; r < ranks(); ++r)
      if (r != rank) elements += nodes_[rank] * all[r].size() + all[rank].size();
  }
  return elements * element_bytes_;
}

}  // namespace lockstep::comm
