// SPDX-License-Identifier: Apache-2.0
#include "sparse/maps/kernel_map_search.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "lockstep/points/detail/sorted_keys.h"
#include "sparse/tasks.h"

// Keys ascend, so the keys of all outputs, moved by one offset, ascend too: its pairs are found by walking through both
// lists at once. Offsets that differ in the last axis alone form a group and share one walk, since what they look for
// lies side by side. Walks leave their pairs in scratch, in ranges of outputs that threads share; the lists are copied
// together when their lengths are known.

namespace lockstep::sparse {
namespace {

constexpr size_t kMostWidth = 3;   // offsets of a group
constexpr size_t kMostGroups = 5;  // groups in scratch at once: it takes 24 bytes an output for each of them

/// Offsets that differ in the last axis alone, ascending along it.
using Group = std::vector<size_t>;

/// An offset of zero from a map onto itself needs no search; one longer than the box finds nothing.
enum class Kind { none, identity, search };

Kind kind_of(std::span<const int64_t> offset, const points::KeyLayout& layout, bool onto_itself) {
  if (onto_itself && std::all_of(offset.begin(), offset.end(), [](int64_t x) { return x == 0; })) return Kind::identity;
  return layout.reaches(offset) ? Kind::search : Kind::none;
}

/// The first position at or after `at` with key >= bound. It is nearly always at hand, but which one it is cannot be
/// predicted, so the next three are compared without a branch; far ones are found by strides that double, so that a few
/// outputs among many inputs cost little. The sentinel at the end stops it.
template <class Key>
inline const Key* advance(const Key* at, const Key* last, Key bound) {
  if (last - at >= 2) [[likely]]
    at += (at[0] < bound) + (at[1] < bound) + (at[2] < bound);
  if (*at >= bound) [[likely]]
    return at;
  for (int step = 0; step < 16; ++step, ++at)
    if (*at >= bound) return at;
  int64_t stride = 16;
  while (last - at > stride && at[stride] < bound) {
    at += stride;
    stride *= 2;
  }
  return std::lower_bound(at, std::min(at + stride, last), bound);
}

/// A pair in one word, so that a walk stores it at once: the output's position above the input's.
uint64_t pair_of(int64_t in, int64_t out) {
  return static_cast<uint64_t>(out) << 32 | static_cast<uint32_t>(in);
}

/// Pairs of outputs [begin, end) at the offsets of a group: list m has those at shifts[m], which ascend; returns where
/// each list ends. Every candidate is written and kept only when it matches: no branch depends on the data but the walk
/// itself. So a list needs room for no more pairs than there are outputs.
template <int kWidth, class Key>
void walk(const std::vector<Key>& in_keys, const std::vector<Key>& out_keys, int64_t begin, int64_t end,
          const Key* shifts, uint64_t** lists) {
  const Key* first = in_keys.data();
  const Key* last = first + in_keys.size() - 1;
  // Copies, which the compiler can keep in registers while pairs are written.
  Key shift[kWidth];
  uint64_t* to[kWidth];
  std::copy_n(shifts, kWidth, shift);
  std::copy_n(lists, kWidth, to);
  const Key* at = std::lower_bound(first, last, static_cast<Key>(out_keys[begin] + shift[0]));
  for (int64_t i = begin; i < end; ++i) {
    const Key key = out_keys[i];
    at = advance(at, last, static_cast<Key>(key + shift[0]));
    const Key* candidate = at;
    uint64_t pair = pair_of(at - first, i);
#pragma GCC unroll 3  // kMostWidth: shifts and ends of lists are then registers
    for (int m = 0; m < kWidth; ++m) {
      const Key wanted = key + shift[m];
      while (*candidate < wanted) ++candidate, ++pair;
      const bool matches = *candidate == wanted;
      *to[m] = pair;
      to[m] += matches;
      candidate += matches;
      pair += matches;
    }
  }
  std::copy_n(to, kWidth, lists);
}

template <class Key>
class Search {
 public:
  Search(const points::SortedKeys& in, const points::SortedKeys& out, int64_t axes, std::span<const int64_t> offsets)
      : in_(in),
        out_(out),
        axes_(axes),
        offsets_(offsets),
        outputs_(out.size()),
        threads_(at::get_num_threads()),
        ranges_(threads_ == 1 ? 1 : std::clamp<int64_t>(outputs_ / 8192, 1, 4 * threads_)) {}

  /// Groups are cut into ranges of outputs where there are threads to share them; the result does not depend on it.
  void run(std::span<const Group> groups, std::vector<PairList>& lists) {
    if (outputs_ == 0) return;
    // One thread takes a group at a time, whose pairs are then still in the cache when they are copied.
    const size_t at_once = std::min(threads_ == 1 ? 1 : kMostGroups, groups.size());
    scratch_.reset(new uint64_t[at_once * kMostWidth * outputs_]);
    for (; !groups.empty(); groups = groups.subspan(std::min(at_once, groups.size())))
      search_groups(groups.first(std::min(at_once, groups.size())), lists);
  }

 private:
  /// What a range of outputs has for a list: where it lies in scratch, how much it is, and where it goes in the list.
  struct Piece {
    const uint64_t* pairs;
    int64_t count;
    int64_t position;
  };

  void search_groups(std::span<const Group> groups, std::vector<PairList>& lists) {
    const int64_t walks = static_cast<int64_t>(groups.size()) * ranges_;
    std::vector<Piece> pieces(walks * kMostWidth);
    const auto nothing = [] { return 0; };
    cpu::for_each_task(walks, nothing, [&](int64_t task, int) { walk_range(groups, task, pieces); });
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t m = 0; m < groups[g].size(); ++m) {
        int64_t count = 0;
        for (int64_t range = 0; range < ranges_; ++range) {
          Piece& piece = pieces[(g * ranges_ + range) * kMostWidth + m];
          piece.position = count;
          count += piece.count;
        }
        lists[groups[g][m]] = PairList(count);
      }
    cpu::for_each_task(walks, nothing, [&](int64_t task, int) {
      const Group& group = groups[task / ranges_];
      for (size_t m = 0; m < group.size(); ++m) copy(pieces[task * kMostWidth + m], lists[group[m]]);
    });
  }

  void walk_range(std::span<const Group> groups, int64_t task, std::vector<Piece>& pieces) {
    static constexpr decltype(&walk<1, Key>) walks[kMostWidth] = {walk<1, Key>, walk<2, Key>, walk<3, Key>};
    const int64_t g = task / ranges_, range = task % ranges_;
    const int64_t begin = outputs_ * range / ranges_, end = outputs_ * (range + 1) / ranges_;
    const Group& group = groups[g];
    Key shifts[kMostWidth];
    uint64_t* ends[kMostWidth];
    for (size_t m = 0; m < group.size(); ++m) {
      shifts[m] = in_.layout.template shift<Key>(offsets_.subspan(group[m] * axes_, axes_));
      ends[m] = scratch_.get() + (g * kMostWidth + m) * outputs_ + begin;
      pieces[task * kMostWidth + m].pairs = ends[m];
    }
    walks[group.size() - 1](in_.get<Key>(), out_.get<Key>(), begin, end, shifts, ends);
    for (size_t m = 0; m < group.size(); ++m) {
      Piece& piece = pieces[task * kMostWidth + m];
      piece.count = ends[m] - piece.pairs;
    }
  }

  static void copy(const Piece& piece, PairList& list) {
    int32_t *in = list.in() + piece.position, *out = list.out() + piece.position;
    for (int64_t i = 0; i < piece.count; ++i) {
      in[i] = static_cast<int32_t>(piece.pairs[i]);
      out[i] = static_cast<int32_t>(piece.pairs[i] >> 32);
    }
  }

  const points::SortedKeys& in_;
  const points::SortedKeys& out_;
  int64_t axes_;
  std::span<const int64_t> offsets_;
  int64_t outputs_;
  int64_t threads_;
  int64_t ranges_;
  std::unique_ptr<uint64_t[]> scratch_;
};

std::vector<Group> make_groups(std::span<const int64_t> offsets, int64_t axes, std::span<const size_t> searched) {
  std::map<std::vector<int64_t>, Group> by_lead;
  for (const size_t k : searched)
    by_lead[{offsets.begin() + k * axes, offsets.begin() + (k + 1) * axes - 1}].push_back(k);
  std::vector<Group> groups;
  for (auto& [lead, all] : by_lead) {
    std::stable_sort(all.begin(), all.end(),
                     [&](size_t a, size_t b) { return offsets[(a + 1) * axes - 1] < offsets[(b + 1) * axes - 1]; });
    for (size_t from = 0; from < all.size(); from += kMostWidth)
      groups.emplace_back(all.begin() + from, all.begin() + std::min(from + kMostWidth, all.size()));
  }
  return groups;
}

}  // namespace

PairList PairList::identity(int64_t count) {
  PairList list;
  list.data_.reset(new int32_t[count]);
  list.count_ = count;
  list.one_array_ = true;
  std::iota(list.in(), list.in() + count, 0);
  return list;
}

points::KeyLayout common_layout(const CoordinateMap& a, const CoordinateMap& b) {
  const points::KeyLayout& layout = a.keys().layout;
  if (layout == b.keys().layout) return layout;
  points::Box box = a.box();
  box.include(b.box());
  return layout.covers(box) ? layout : points::KeyLayout("KernelMap::build", box);
}

std::vector<PairList> search_pairs(const CoordinateMap& in, const CoordinateMap& out, std::span<const int64_t> offsets,
                                   const std::vector<bool>& wanted) {
  const int64_t axes = in.dimension();
  std::vector<PairList> lists(wanted.size());
  // Both sides in one layout. Maps derived from each other have the same one; others are repacked.
  const points::KeyLayout layout = common_layout(in, out);
  const auto in_layout = [&](const CoordinateMap& map,
                             std::optional<points::SortedKeys>& copy) -> const points::SortedKeys& {
    return map.keys().layout == layout ? map.keys() : copy.emplace(repack(map.keys(), layout));
  };
  std::optional<points::SortedKeys> in_copy, out_copy;
  const points::SortedKeys& in_keys = in_layout(in, in_copy);
  const points::SortedKeys& out_keys = in_layout(out, out_copy);

  std::vector<size_t> searched;
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!wanted[k]) continue;
    const Kind kind = kind_of(offsets.subspan(k * axes, axes), layout, &in == &out);
    if (kind == Kind::identity) lists[k] = PairList::identity(in.size());
    if (kind == Kind::search) searched.push_back(k);
  }
  const std::vector<Group> groups = make_groups(offsets, axes, searched);
  if (layout.wide())
    Search<points::Key128>(in_keys, out_keys, axes, offsets).run(groups, lists);
  else
    Search<uint64_t>(in_keys, out_keys, axes, offsets).run(groups, lists);
  return lists;
}

}  // namespace lockstep::sparse
