// SPDX-License-Identifier: Apache-2.0
#include "sparse/kernel_map_search.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "lockstep/core/parallel_for.h"
#include "sparse/cpu/tasks.h"
#include "sparse/keys.h"

// Keys ascend, so the keys of all outputs, moved by one offset, ascend too: its pairs are found by walking through both
// lists at once. Offsets that differ in the last axis alone form a group and share one walk, since what they look for
// lies side by side.

namespace lockstep::sparse {
namespace {

constexpr size_t kMostWidth = 3;   // offsets of a group
constexpr size_t kMostGroups = 4;  // groups of a bundle

/// Offsets that differ in the last axis alone, ascending along it.
using Group = std::vector<size_t>;
/// Groups of one size that are walked together.
using Bundle = std::vector<Group>;

/// An offset of zero from a map onto itself needs no search; one longer than the box finds nothing.
enum class Kind { none, identity, search };

Kind kind_of(std::span<const int64_t> offset, const KeyLayout& layout, bool onto_itself) {
  if (onto_itself && std::all_of(offset.begin(), offset.end(), [](int64_t x) { return x == 0; })) return Kind::identity;
  return layout.reaches(offset) ? Kind::search : Kind::none;
}

/// The first position at or after `at` with key >= bound. It is nearly always at hand; far ones are found by strides
/// that double, so that a few outputs among many inputs cost little. The sentinel at the end stops it.
template <class Key>
inline const Key* advance(const Key* at, const Key* last, Key bound) {
  at += *at < bound;
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

/// Pairs of outputs [begin, end) at the kWidth offsets of each of kGroups groups: `shifts` and `lists` of one group
/// after the other; returns where each list ends. Every candidate is written and kept only when it matches: no branch
/// depends on the data but the walk itself. Walks are waits for loads, so several at once take little longer than one.
/// `kTight`: shifts of a group follow each other by one, so that no key lies between two that are looked for.
template <int kGroups, int kWidth, bool kTight, class Key>
void walk(const std::vector<Key>& in_keys, const std::vector<Key>& out_keys, int64_t begin, int64_t end,
          const Key* shifts, uint64_t** lists) {
  const Key* first = in_keys.data();
  const Key* last = first + in_keys.size() - 1;
  const Key* at[kGroups];
  uint64_t* to[kGroups * kWidth];
  std::copy_n(lists, kGroups * kWidth, to);
  for (int g = 0; g < kGroups; ++g)
    at[g] = std::lower_bound(first, last, static_cast<Key>(out_keys[begin] + shifts[g * kWidth]));
  for (int64_t i = begin; i < end; ++i) {
    const Key key = out_keys[i];
    for (int g = 0; g < kGroups; ++g) {
      at[g] = advance(at[g], last, static_cast<Key>(key + shifts[g * kWidth]));
      const Key* candidate = at[g];
      for (int m = 0; m < kWidth; ++m) {
        const int n = g * kWidth + m;
        const Key wanted = key + shifts[n];
        if (m > 0) {
          candidate += *candidate < wanted;
          if constexpr (!kTight)
            while (*candidate < wanted) [[unlikely]]++ candidate;
        }
        *to[n] = pair_of(candidate - first, i);
        to[n] += *candidate == wanted;
      }
    }
  }
  std::copy_n(to, kGroups * kWidth, lists);
}

template <class Key>
class Search {
 public:
  Search(const SortedKeys& in, const SortedKeys& out, int64_t axes, std::span<const int64_t> offsets)
      : in_(in), out_(out), axes_(axes), offsets_(offsets) {}

  /// Bundles are cut into ranges of outputs where there are threads to share them; the result does not depend on it.
  void run(const std::vector<Bundle>& bundles, std::vector<PairList>& lists) {
    const int64_t outputs = static_cast<int64_t>(out_.get<Key>().size()) - 1;
    if (outputs == 0 || bundles.empty()) return;
    const int64_t threads = at::get_num_threads();
    const int64_t ranges = threads == 1 ? 1 : std::clamp<int64_t>(outputs / 8192, 1, 4 * threads);
    std::vector<std::vector<PairList>> pieces(lists.size());
    for (const Bundle& bundle : bundles)
      for (const Group& group : bundle)
        for (const size_t k : group) pieces[k].resize(ranges);
    const int64_t most = (outputs + ranges - 1) / ranges + 1;
    cpu::for_each_task(
        static_cast<int64_t>(bundles.size()) * ranges,
        [&] { return std::unique_ptr<uint64_t[]>(new uint64_t[kMostGroups * kMostWidth * most]); },
        [&](int64_t task, const std::unique_ptr<uint64_t[]>& scratch) {
          const int64_t range = task % ranges;
          search_bundle(bundles[task / ranges], outputs * range / ranges, outputs * (range + 1) / ranges, most,
                        scratch.get(), range, pieces);
        });
    parallel_for(0, static_cast<int64_t>(lists.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        if (!pieces[k].empty()) lists[k] = join(pieces[k]);
    });
  }

 private:
  using Walk = void (*)(const std::vector<Key>&, const std::vector<Key>&, int64_t, int64_t, const Key*, uint64_t**);

  template <bool kTight>
  static Walk walk_of(size_t groups, size_t width) {
    static constexpr Walk walks[kMostGroups][kMostWidth] = {
        {walk<1, 1, kTight, Key>, walk<1, 2, kTight, Key>, walk<1, 3, kTight, Key>},
        {walk<2, 1, kTight, Key>, walk<2, 2, kTight, Key>, walk<2, 3, kTight, Key>},
        {walk<3, 1, kTight, Key>, walk<3, 2, kTight, Key>, walk<3, 3, kTight, Key>},
        {walk<4, 1, kTight, Key>, walk<4, 2, kTight, Key>, walk<4, 3, kTight, Key>},
    };
    return walks[groups - 1][width - 1];
  }

  void search_bundle(const Bundle& bundle, int64_t begin, int64_t end, int64_t most, uint64_t* scratch, int64_t range,
                     std::vector<std::vector<PairList>>& pieces) {
    const size_t width = bundle[0].size();
    Key shifts[kMostGroups * kMostWidth];
    uint64_t* ends[kMostGroups * kMostWidth];
    size_t count = 0;
    bool tight = true;
    for (const Group& group : bundle)
      for (const size_t k : group) {
        shifts[count] = in_.layout.template shift<Key>(offsets_.subspan(k * axes_, axes_));
        tight = tight && (count % width == 0 || shifts[count] == shifts[count - 1] + 1);
        ends[count] = scratch + count * most;
        ++count;
      }
    const Walk walk = tight ? walk_of<true>(bundle.size(), width) : walk_of<false>(bundle.size(), width);
    walk(in_.get<Key>(), out_.get<Key>(), begin, end, shifts, ends);
    count = 0;
    for (const Group& group : bundle)
      for (const size_t k : group) {
        const uint64_t* pairs = scratch + count * most;
        PairList list(ends[count++] - pairs);
        int32_t *in = list.in(), *out = list.out();
        for (int64_t i = 0; i < list.count(); ++i) {
          in[i] = static_cast<int32_t>(pairs[i]);
          out[i] = static_cast<int32_t>(pairs[i] >> 32);
        }
        pieces[k][range] = std::move(list);
      }
  }

  static PairList join(std::vector<PairList>& pieces) {
    if (pieces.size() == 1) return std::move(pieces[0]);
    int64_t count = 0;
    for (const PairList& piece : pieces) count += piece.count();
    PairList list(count);
    int32_t *in = list.in(), *out = list.out();
    for (const PairList& piece : pieces) {
      in = std::copy_n(piece.in(), piece.count(), in);
      out = std::copy_n(piece.out(), piece.count(), out);
    }
    return list;
  }

  const SortedKeys& in_;
  const SortedKeys& out_;
  int64_t axes_;
  std::span<const int64_t> offsets_;
};

std::vector<Bundle> make_bundles(std::span<const int64_t> offsets, int64_t axes, std::span<const size_t> searched) {
  std::map<std::vector<int64_t>, Group> by_lead;
  for (const size_t k : searched)
    by_lead[{offsets.begin() + k * axes, offsets.begin() + (k + 1) * axes - 1}].push_back(k);
  std::vector<Bundle> by_size[kMostWidth + 1];
  for (auto& [lead, all] : by_lead) {
    std::stable_sort(all.begin(), all.end(),
                     [&](size_t a, size_t b) { return offsets[(a + 1) * axes - 1] < offsets[(b + 1) * axes - 1]; });
    for (size_t from = 0; from < all.size(); from += kMostWidth) {
      Group group(all.begin() + from, all.begin() + std::min(from + kMostWidth, all.size()));
      std::vector<Bundle>& bundles = by_size[group.size()];
      if (bundles.empty() || bundles.back().size() == kMostGroups) bundles.emplace_back();
      bundles.back().push_back(std::move(group));
    }
  }
  std::vector<Bundle> bundles;
  for (auto& of_size : by_size) std::move(of_size.begin(), of_size.end(), std::back_inserter(bundles));
  return bundles;
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

KeyLayout common_layout(const CoordinateMap& a, const CoordinateMap& b) {
  const KeyLayout& layout = a.keys().layout;
  if (layout == b.keys().layout) return layout;
  Box box = a.box();
  box.include(b.box());
  return layout.covers(box) ? layout : KeyLayout("KernelMap::build", box);
}

std::vector<PairList> search_pairs(const CoordinateMap& in, const CoordinateMap& out, std::span<const int64_t> offsets,
                                   const std::vector<bool>& wanted) {
  const int64_t axes = in.dimension();
  std::vector<PairList> lists(wanted.size());
  // Both sides in one layout. Maps derived from each other have the same one; others are repacked.
  const KeyLayout layout = common_layout(in, out);
  const auto in_layout = [&](const CoordinateMap& map, std::optional<SortedKeys>& copy) -> const SortedKeys& {
    return map.keys().layout == layout ? map.keys() : copy.emplace(repack(map.keys(), layout));
  };
  std::optional<SortedKeys> in_copy, out_copy;
  const SortedKeys& in_keys = in_layout(in, in_copy);
  const SortedKeys& out_keys = in_layout(out, out_copy);

  std::vector<size_t> searched;
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!wanted[k]) continue;
    const Kind kind = kind_of(offsets.subspan(k * axes, axes), layout, &in == &out);
    if (kind == Kind::identity) lists[k] = PairList::identity(in.size());
    if (kind == Kind::search) searched.push_back(k);
  }
  const std::vector<Bundle> bundles = make_bundles(offsets, axes, searched);
  if (layout.wide())
    Search<Key128>(in_keys, out_keys, axes, offsets).run(bundles, lists);
  else
    Search<uint64_t>(in_keys, out_keys, axes, offsets).run(bundles, lists);
  return lists;
}

}  // namespace lockstep::sparse
