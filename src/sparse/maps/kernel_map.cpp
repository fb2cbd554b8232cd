// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/kernel_map.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "lockstep/base/detail/parallel_for.h"
#include "lockstep/base/error.h"
#include "lockstep/sparse/detail/row_map.h"
#include "sparse/maps/kernel_map_search.h"

namespace lockstep::sparse {

namespace {

/// The list that an offset shows, as it is or with its sides exchanged.
struct View {
  size_t list;
  bool exchanged;
};

}  // namespace

struct KernelMap::Body {
  Side sides[2];
  std::vector<int64_t> offsets;  // input - output, D values each; empty for an identity
  std::vector<View> views;
  std::once_flag lists_once;
  std::vector<PairList> lists;
  std::atomic<bool> has_lists = false;  // for those who only look
};

namespace {

/// Which list each offset shows, by the number of the offset that it was searched for. Equal offsets share one. Of two
/// that mirror each other the one that leads backwards in the order of keys is searched: those beside it along the last
/// axis are too, and share its walk.
std::vector<View> share_lists(std::span<const int64_t> offsets, int64_t axes, bool onto_itself) {
  const size_t volume = offsets.size() / axes;
  const auto offset_of = [&](size_t k) {
    return std::vector<int64_t>(offsets.begin() + k * axes, offsets.begin() + (k + 1) * axes);
  };
  std::map<std::vector<int64_t>, size_t> first;
  for (size_t k = 0; k < volume; ++k) first.emplace(offset_of(k), k);
  std::vector<View> views;
  for (size_t k = 0; k < volume; ++k) {
    const std::vector<int64_t> offset = offset_of(k);
    std::vector<int64_t> negated;
    for (const int64_t value : offset) negated.push_back(-value);
    const auto mirror = first.find(negated);
    const bool mirrors = onto_itself && mirror != first.end() && negated < offset;
    views.push_back({mirrors ? mirror->second : first.at(offset), mirrors});
  }
  return views;
}

/// Bounds of the tiles in one ascending list. At most kTileRows pairs lie in a tile, so a bound is bisected among the
/// next ones, in steps that don't depend on the data: they need no branch.
void cut_tiles(const int32_t* positions, int64_t count, int64_t tiles, int64_t* bounds) {
  constexpr int64_t kRows = KernelMap::kTileRows;
  static_assert((kRows & (kRows - 1)) == 0);
  const int32_t *at = positions, *end = positions + count;
  bounds[0] = 0;
  for (int64_t tile = 1; tile < tiles; ++tile) {
    const int32_t bound = static_cast<int32_t>(tile * kRows);
    if (end - at >= kRows) [[likely]] {
      for (int64_t step = kRows / 2; step > 0; step /= 2) at += at[step - 1] < bound ? step : 0;
      at += *at < bound;
    } else {
      at = std::lower_bound(at, end, bound);
    }
    bounds[tile] = at - positions;
  }
  // The last bound itself may exceed int32.
  bounds[tiles] = count;
}

}  // namespace

KernelMapPtr KernelMap::build(CoordinateMapPtr in, CoordinateMapPtr out, std::span<const int64_t> offsets) {
  KernelMapPtr map = deferred(std::move(in), std::move(out), offsets);
  map->searched();
  return map;
}

KernelMapPtr KernelMap::deferred(CoordinateMapPtr in, CoordinateMapPtr out, std::span<const int64_t> offsets) {
  const int64_t axes = in->dimension();
  require(out->dimension() == axes, "KernelMap::build", "the output has ", out->dimension(), " axes, expected ", axes,
          " as the input has");
  require(!offsets.empty() && offsets.size() % axes == 0, "KernelMap::build", "there are ", offsets.size(),
          " offset values, expected a multiple of ", axes);
  for (const int64_t value : offsets)
    require(value <= int64_t{1} << 62 && value >= -(int64_t{1} << 62), "KernelMap::build", "an offset is ", value,
            ", expected -2^62 to 2^62");
  common_layout(*in, *out);  // throws now and not when it is used
  auto body = std::make_shared<Body>();
  body->views = share_lists(offsets, axes, in == out);
  body->offsets.assign(offsets.begin(), offsets.end());
  const CoordinateMapPtr maps[] = {std::move(in), std::move(out)};
  for (int which : {0, 1}) {
    body->sides[which].size = maps[which]->size();
    body->sides[which].order = maps[which]->order();
    body->sides[which].map = maps[which];
  }
  return KernelMapPtr::unsafe_steal_from_new(new KernelMap(std::move(body), false));
}

KernelMapPtr KernelMap::identity(int64_t rows) {
  require(rows >= 0 && rows < (int64_t{1} << 31) - 1, "KernelMap::identity", "there are ", rows,
          " rows, expected 0 to 2^31 - 2");
  auto body = std::make_shared<Body>();
  body->views.push_back({0, false});
  for (Side& side : body->sides) side.size = rows;
  return KernelMapPtr::unsafe_steal_from_new(new KernelMap(std::move(body), false));
}

const KernelMap::Body& KernelMap::searched() const {
  Body& body = *body_;
  std::call_once(body.lists_once, [&] {
    if (body.offsets.empty()) {
      body.lists.push_back(PairList::identity(body.sides[0].size));
    } else {
      std::vector<bool> wanted(body.views.size(), false);
      for (const View& view : body.views) wanted[view.list] = true;
      body.lists = search_pairs(*body.sides[0].map, *body.sides[1].map, body.offsets, wanted);
    }
    body.has_lists = true;
  });
  return body;
}

std::vector<int64_t> KernelMap::offsets() const {
  std::vector<int64_t> offsets = body_->offsets;
  if (exchanged_)
    for (int64_t& value : offsets) value = -value;
  return offsets;
}

KernelMap::Side& KernelMap::side(int which) const {
  return body_->sides[exchanged_ ? 1 - which : which];
}

int64_t KernelMap::volume() const {
  return static_cast<int64_t>(body_->views.size());
}

int64_t KernelMap::pair_count() const {
  int64_t sum = 0;
  for (int64_t k = 0; k < volume(); ++k) sum += pairs(k).count;
  return sum;
}

KernelMap::Pairs KernelMap::pairs(int64_t offset) const {
  const Body& body = searched();
  const View view = body.views[offset];
  const PairList& list = body.lists[view.list];
  Pairs pairs{list.in(), list.out(), list.count()};
  if (view.exchanged != exchanged_) std::swap(pairs.in, pairs.out);
  return pairs;
}

const int64_t* KernelMap::tile_bounds(int64_t offset) const {
  Side& outputs = side(1);
  const int64_t tiles = tile_count();
  std::call_once(outputs.tiles_once, [&] {
    outputs.tiles.resize(volume() * (tiles + 1));
    parallel_for(0, volume(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        cut_tiles(pairs(k).out, pairs(k).count, tiles, outputs.tiles.data() + k * (tiles + 1));
    });
    outputs.has_tiles = true;
  });
  return outputs.tiles.data() + offset * (tiles + 1);
}

KernelMapPtr KernelMap::transposed() const {
  return KernelMapPtr::unsafe_steal_from_new(new KernelMap(body_, !exchanged_));
}

at::Tensor KernelMap::rows(int64_t offset) const {
  const Pairs list = pairs(offset);
  at::Tensor result = at::empty({2, list.count}, at::kLong);
  int64_t* in = result.mutable_data_ptr<int64_t>();
  int64_t* out = in + list.count;
  for (int64_t i = 0; i < list.count; ++i) {
    in[i] = in_order().empty() ? list.in[i] : in_order()[list.in[i]];
    out[i] = out_order().empty() ? list.out[i] : out_order()[list.out[i]];
  }
  return result;
}

c10::intrusive_ptr<RowMap> KernelMap::row_map() const {
  Side& outputs = side(1);
  std::call_once(outputs.rows_once, [&] {
    // Count, then fill in order of the offsets.
    std::vector<int64_t> bounds(out_size() + 1, 0);
    for (int64_t k = 0; k < volume(); ++k) {
      const Pairs list = pairs(k);
      for (int64_t i = 0; i < list.count; ++i)
        ++bounds[(out_order().empty() ? list.out[i] : out_order()[list.out[i]]) + 1];
    }
    std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
    std::vector<int32_t> columns(bounds.back());
    std::vector<int64_t> next(bounds.begin(), bounds.end() - 1);
    for (int64_t k = 0; k < volume(); ++k) {
      const Pairs list = pairs(k);
      for (int64_t i = 0; i < list.count; ++i)
        columns[next[out_order().empty() ? list.out[i] : out_order()[list.out[i]]]++] =
            in_order().empty() ? list.in[i] : in_order()[list.in[i]];
    }
    outputs.rows = RowMap::from_bounds(std::move(bounds), std::move(columns), in_size());
  });
  return outputs.rows;
}

int64_t KernelMap::bytes() const {
  int64_t sum = 0;
  if (body_->has_lists)
    for (const PairList& list : body_->lists) sum += list.bytes();
  for (const Side& one : body_->sides)
    if (one.has_tiles) sum += static_cast<int64_t>(one.tiles.size() * sizeof(int64_t));
  return sum;
}

}  // namespace lockstep::sparse
