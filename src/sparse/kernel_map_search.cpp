// SPDX-License-Identifier: Apache-2.0
#include "sparse/kernel_map_search.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "sparse/keys.h"

// Keys ascend, so the keys of all outputs, moved by one offset, ascend too: its pairs are found by walking through both
// lists at once. Offsets that differ in the last axis alone form a group and share one walk, since what they look for
// lies side by side.

namespace lockstep::sparse {
namespace {

struct Group {
  std::vector<size_t> offsets;  // which ones, ascending along the last axis
};

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
  for (int step = 0; step < 16; ++step, ++at)
    if (*at >= bound) return at;
  int64_t stride = 16;
  while (last - at > stride && at[stride] < bound) {
    at += stride;
    stride *= 2;
  }
  return std::lower_bound(at, std::min(at + stride, last), bound);
}

/// Where one walk writes: for each offset of its group an array of input and one of output positions.
struct Sink {
  int32_t* in;
  int32_t* out;
  int64_t count = 0;
};

/// Pairs of outputs [begin, end) at up to kWidth offsets of one group. Every candidate is written and kept only when
/// it matches: no branch depends on the data but the walk itself.
template <int kWidth, class Key>
void walk(const std::vector<Key>& in_keys, const std::vector<Key>& out_keys, int64_t begin, int64_t end,
          const Key* shifts, Sink* sinks) {
  const Key* first = in_keys.data();
  const Key* last = first + in_keys.size() - 1;
  const Key* at = std::lower_bound(first, last, static_cast<Key>(out_keys[begin] + shifts[0]));
  int64_t count[kWidth] = {};
  for (int64_t i = begin; i < end; ++i) {
    at = advance(at, last, static_cast<Key>(out_keys[i] + shifts[0]));
    const Key* candidate = at;
    for (int m = 0; m < kWidth; ++m) {
      const Key wanted = out_keys[i] + shifts[m];
      if (m > 0) {
        candidate += *candidate < wanted;
        while (*candidate < wanted) [[unlikely]]++ candidate;
      }
      sinks[m].in[count[m]] = static_cast<int32_t>(candidate - first);
      sinks[m].out[count[m]] = static_cast<int32_t>(i);
      count[m] += *candidate == wanted;
    }
  }
  for (int m = 0; m < kWidth; ++m) sinks[m].count = count[m];
}

template <class Key>
class Search {
 public:
  Search(const SortedKeys& in, const SortedKeys& out, int64_t axes, std::span<const int64_t> offsets)
      : in_(in), out_(out), axes_(axes), offsets_(offsets) {}

  /// Groups are cut into ranges of outputs where there are threads to share them; the result does not depend on it.
  void run(const std::vector<Group>& groups, std::vector<PairList>& lists) {
    const int64_t outputs = static_cast<int64_t>(out_.get<Key>().size()) - 1;
    if (outputs == 0 || groups.empty()) return;
    const int64_t threads = at::get_num_threads();
    const int64_t ranges = threads == 1 ? 1 : std::clamp<int64_t>(outputs / 8192, 1, 2 * threads);
    std::vector<std::vector<PairList>> pieces(lists.size());
    for (const Group& group : groups)
      for (const size_t k : group.offsets) pieces[k].resize(ranges);
    const int64_t tasks = static_cast<int64_t>(groups.size()) * ranges;
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      const int64_t most = (outputs + ranges - 1) / ranges + 1;
      const std::unique_ptr<int32_t[]> scratch(new int32_t[2 * kMostWidth * most]);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t range = task % ranges;
        search_group(groups[task / ranges], outputs * range / ranges, outputs * (range + 1) / ranges, most,
                     scratch.get(), range, pieces);
      }
    });
    at::parallel_for(0, static_cast<int64_t>(lists.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        if (!pieces[k].empty()) lists[k] = join(pieces[k]);
    });
  }

 private:
  static constexpr int kMostWidth = 3;

  void search_group(const Group& group, int64_t begin, int64_t end, int64_t most, int32_t* scratch, int64_t range,
                    std::vector<std::vector<PairList>>& pieces) {
    for (size_t from = 0; from < group.offsets.size(); from += kMostWidth) {
      const int width = static_cast<int>(std::min<size_t>(kMostWidth, group.offsets.size() - from));
      Key shifts[kMostWidth];
      Sink sinks[kMostWidth];
      for (int m = 0; m < width; ++m) {
        shifts[m] = in_.layout.template shift<Key>(offsets_.subspan(group.offsets[from + m] * axes_, axes_));
        sinks[m] = {scratch + 2 * m * most, scratch + (2 * m + 1) * most};
      }
      const auto walk_width = width == 1 ? walk<1, Key> : width == 2 ? walk<2, Key> : walk<3, Key>;
      walk_width(in_.get<Key>(), out_.get<Key>(), begin, end, shifts, sinks);
      for (int m = 0; m < width; ++m) {
        PairList list(sinks[m].count);
        std::copy_n(sinks[m].in, sinks[m].count, list.in());
        std::copy_n(sinks[m].out, sinks[m].count, list.out());
        pieces[group.offsets[from + m]][range] = std::move(list);
      }
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

std::vector<Group> make_groups(std::span<const int64_t> offsets, int64_t axes, std::span<const size_t> searched) {
  std::map<std::vector<int64_t>, Group> by_lead;
  for (const size_t k : searched)
    by_lead[{offsets.begin() + k * axes, offsets.begin() + (k + 1) * axes - 1}].offsets.push_back(k);
  std::vector<Group> groups;
  for (auto& [lead, group] : by_lead) {
    std::stable_sort(group.offsets.begin(), group.offsets.end(),
                     [&](size_t a, size_t b) { return offsets[(a + 1) * axes - 1] < offsets[(b + 1) * axes - 1]; });
    groups.push_back(std::move(group));
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

std::vector<PairList> search_pairs(const CoordinateMap& in, const CoordinateMap& out, std::span<const int64_t> offsets,
                                   std::span<const size_t> source) {
  const int64_t axes = in.dimension();
  std::vector<PairList> lists(source.size());
  // Both sides in one layout. Maps derived from each other have the same one; others are repacked.
  KeyLayout layout = in.keys().layout;
  if (!(layout == out.keys().layout)) {
    Box box = in.box();
    box.include(out.box());
    if (!layout.covers(box)) layout = KeyLayout("KernelMap::build", box);
  }
  const auto in_layout = [&](const CoordinateMap& map, std::optional<SortedKeys>& copy) -> const SortedKeys& {
    return map.keys().layout == layout ? map.keys() : copy.emplace(repack(map.keys(), layout));
  };
  std::optional<SortedKeys> in_copy, out_copy;
  const SortedKeys& in_keys = in_layout(in, in_copy);
  const SortedKeys& out_keys = in_layout(out, out_copy);

  std::vector<size_t> searched;
  for (size_t k = 0; k < source.size(); ++k) {
    if (source[k] != k) continue;
    const Kind kind = kind_of(offsets.subspan(k * axes, axes), layout, &in == &out);
    if (kind == Kind::identity) lists[k] = PairList::identity(in.size());
    if (kind == Kind::search) searched.push_back(k);
  }
  const std::vector<Group> groups = make_groups(offsets, axes, searched);
  if (layout.wide())
    Search<Key128>(in_keys, out_keys, axes, offsets).run(groups, lists);
  else
    Search<uint64_t>(in_keys, out_keys, axes, offsets).run(groups, lists);
  return lists;
}

}  // namespace lockstep::sparse
