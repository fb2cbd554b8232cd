// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/numerics/placement.h"

namespace lockstep {

/// The canonical tree: the balanced binary tree over R logical replicas that fixes the order in which their
/// contributions are added, wherever they run. The node of level k and number i covers the leaves
/// [i * 2^k, (i + 1) * 2^k), cut off at R; a node without a right child is its left child.
/// True where `left` and `right` are the two children of one node of the tree over `leaves` leaves.
bool are_siblings(int64_t leaves, Interval left, Interval right);

/// Adds values of adjacent nodes, handed over from left to right, in the tree's order: a binary counter. It merges two
/// neighbours as soon as they are siblings, so it holds at most log2 R values for aligned input, and what it holds at
/// the end of a block are the block's maximal nodes (at most 2 log2 R).
///
/// `merge(T& left, T&& right)` adds the right value into the left one.
template <class T, class Merge>
class TreeAccumulator {
 public:
  struct Entry {
    Interval interval;
    T value;
  };

  TreeAccumulator(int64_t leaves, Merge merge) : leaves_(leaves), merge_(std::move(merge)) {}

  void push(Interval interval, T value) {
    entries_.push_back({interval, std::move(value)});
    while (entries_.size() > 1) {
      Entry& left = entries_[entries_.size() - 2];
      Entry& right = entries_.back();
      if (!are_siblings(leaves_, left.interval, right.interval)) return;
      merge_(left.value, std::move(right.value));
      left.interval.end = right.interval.end;
      entries_.pop_back();
    }
  }

  /// The nodes that found no sibling yet, from left to right; one, the root, once every leaf was pushed.
  std::vector<Entry>& entries() { return entries_; }
  bool complete() const { return entries_.size() == 1 && entries_[0].interval == Interval{0, leaves_}; }

 private:
  int64_t leaves_;
  Merge merge_;
  std::vector<Entry> entries_;
};

/// Adds up leaf(0), ..., leaf(leaves - 1), at least one, in the tree's order; `merge` as above.
template <class Leaf, class Merge>
auto merge_as_tree(int64_t leaves, const Leaf& leaf, const Merge& merge) {
  TreeAccumulator<std::decay_t<decltype(leaf(int64_t{0}))>, Merge> tree(leaves, merge);
  for (int64_t i = 0; i < leaves; ++i) tree.push({i, i + 1}, leaf(i));
  return std::move(tree.entries().front().value);
}

/// The maximal nodes of the tree that make up the block, from left to right: what a process that runs these replicas
/// contributes to a sum over all of them.
std::vector<Interval> block_nodes(int64_t leaves, Interval block);

}  // namespace lockstep
