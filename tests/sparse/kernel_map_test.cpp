// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/kernel_map.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/sparse/detail/row_map.h"
#include "lockstep/sparse/kernel_region.h"
#include "support/clouds.h"

namespace lockstep::sparse {
namespace {

using test::Point;
using test::random_cloud;
using test::rows_of;
using test::to_points;
using test::to_tensor;
using Rows = std::set<std::pair<int64_t, int64_t>>;

/// All (input row, output row) at one offset, by looking each output up.
Rows reference(const CoordinateMap& in, const CoordinateMap& out, std::span<const int64_t> offset) {
  Rows expected;
  const auto rows = rows_of(in.coordinates());
  const auto outputs = to_points(out.coordinates());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Point wanted = outputs[i];
    for (size_t axis = 0; axis < offset.size(); ++axis) wanted[axis + 1] += offset[axis];
    if (const auto found = rows.find(wanted); found != rows.end()) expected.emplace(found->second, i);
  }
  return expected;
}

Rows rows_at(const KernelMap& map, int64_t k) {
  Rows got;
  const at::Tensor rows = map.rows(k);
  const auto pairs = rows.accessor<int64_t, 2>();
  for (int64_t i = 0; i < rows.size(1); ++i) got.emplace(pairs[0][i], pairs[1][i]);
  EXPECT_EQ(static_cast<int64_t>(got.size()), rows.size(1)) << "a pair occurs twice";
  return got;
}

void expect_right(const CoordinateMapPtr& in, const CoordinateMapPtr& out, const std::vector<int64_t>& offsets) {
  const int64_t axes = in->dimension();
  const KernelMapPtr map = KernelMap::build(in, out, offsets);
  const KernelMapPtr back = map->transposed();
  ASSERT_EQ(map->volume() * axes, static_cast<int64_t>(offsets.size()));
  int64_t pairs = 0;
  for (int64_t k = 0; k < map->volume(); ++k) {
    const Rows expected = reference(*in, *out, std::span(offsets).subspan(k * axes, axes));
    ASSERT_EQ(rows_at(*map, k), expected) << "offset " << k;
    pairs += static_cast<int64_t>(expected.size());
    Rows exchanged;
    for (const auto& [a, b] : expected) exchanged.emplace(b, a);
    ASSERT_EQ(rows_at(*back, k), exchanged) << "offset " << k;
    for (const KernelMap* side : {map.get(), back.get()}) {
      const KernelMap::Pairs list = side->pairs(k);
      EXPECT_TRUE(std::is_sorted(list.in, list.in + list.count) && std::is_sorted(list.out, list.out + list.count));
      const int64_t* bounds = side->tile_bounds(k);
      EXPECT_EQ(bounds[side->tile_count()], list.count);
      for (int64_t tile = 0; tile < side->tile_count(); ++tile)
        for (int64_t i = bounds[tile]; i < bounds[tile + 1]; ++i) ASSERT_EQ(list.out[i] / KernelMap::kTileRows, tile);
    }
  }
  EXPECT_EQ(map->pair_count(), pairs);
}

TEST(KernelRegion, RunsThroughTheFirstAxisFastest) {
  EXPECT_EQ(KernelRegion::hypercube({3, 2}, {1, 1}).offsets({1, 1}),
            (std::vector<int64_t>{-1, 0, 0, 0, 1, 0, -1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(KernelRegion::hypercube({2, 1}, {3, 1}).offsets({4, 4}), (std::vector<int64_t>{0, 0, 12, 0}));
  EXPECT_EQ(KernelRegion::hypercross({3, 3}, {1, 2}).offsets({1, 1}),
            (std::vector<int64_t>{0, 0, 1, 0, -1, 0, 0, 2, 0, -2}));
  EXPECT_EQ(KernelRegion::with_offsets({5, -1}, {2, 1}).offsets({2, 2}), (std::vector<int64_t>{20, -2}));
  for (const auto& region :
       {KernelRegion::hypercube({3, 4, 5}, {1, 1, 1}), KernelRegion::hypercross({5, 3, 1}, {1, 1, 1})})
    EXPECT_EQ(region.volume() * 3, static_cast<int64_t>(region.offsets({1, 1, 1}).size()));
}

TEST(KernelRegion, RefusesSizesThatMeanNothing) {
  EXPECT_THROW(KernelRegion::hypercube({0}, {1}), Error);
  EXPECT_THROW(KernelRegion::hypercube({3}, {0}), Error);
  EXPECT_THROW(KernelRegion::hypercube({3, 3}, {1}), Error);
  EXPECT_THROW(KernelRegion::hypercross({2}, {1}), Error);
  EXPECT_THROW(KernelRegion::with_offsets({1, 2, 3}, {1, 1}), Error);
  EXPECT_THROW(KernelRegion::hypercube({4096, 4096}, {1, 1}), Error);
}

TEST(KernelMap, FindsThePairsOfAMapWithItself) {
  for (const int64_t axes : {1, 2, 3, 4, 5}) {
    const int64_t high = axes == 1 ? 400 : axes == 2 ? 20 : 5;
    const auto map = CoordinateMap::insert(random_cloud(700, axes, -high, high, 2, 21)).map;
    const AxisValues ones(axes, 1);
    for (const int64_t size : {1, 2, 3, 5})
      if (axes < 4 || size < 4)
        expect_right(map, map, KernelRegion::hypercube(AxisValues(axes, size), ones).offsets(ones));
    expect_right(map, map, KernelRegion::hypercross(AxisValues(axes, 5), AxisValues(axes, 2)).offsets(ones));
  }
}

TEST(KernelMap, FindsThePairsOfStridedUnrelatedAndDilatedMaps) {
  const auto fine = CoordinateMap::insert(random_cloud(900, 3, -13, 12, 2, 4)).map;
  const AxisValues ones = {1, 1, 1};
  for (const AxisValues& stride : {AxisValues{2, 2, 2}, {3, 1, 2}, {100, 100, 100}}) {
    const auto coarse = fine->strided(stride);
    for (const int64_t size : {2, 3})
      expect_right(fine, coarse, KernelRegion::hypercube(AxisValues(3, size), ones).offsets(ones));
    expect_right(coarse, coarse, KernelRegion::hypercube({3, 3, 3}, {2, 1, 1}).offsets(stride));
  }
  const auto other = CoordinateMap::insert(random_cloud(50, 3, -60, 60, 3, 5)).map;
  expect_right(fine, other, KernelRegion::hypercube({3, 3, 3}, {1, 2, 7}).offsets(ones));
  expect_right(other, fine, KernelRegion::hypercube({3, 3, 3}, {1, 2, 7}).offsets(ones));
  expect_right(fine, fine, {1, 0, 0, 1, 0, 0, 0, 0, 0, -1, 0, 0, 30, 0, 0, 0, 0, 5, 0, 0, -5});
}

TEST(KernelMap, TakesAFewOutputsAmongManyInputs) {
  const auto many = CoordinateMap::insert(random_cloud(20000, 1, -9000, 9000, 2, 6)).map;
  const auto few = CoordinateMap::insert(to_tensor({{0, -8999}, {0, 17}, {1, 8000}, {1, 20000}}, 2)).map;
  expect_right(many, few, KernelRegion::hypercube({7}, {50}).offsets({1}));
}

TEST(KernelMap, LooksOverTheLimitsOfInt32WithoutWrapping) {
  constexpr int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  const auto map = CoordinateMap::insert(to_tensor({{0, low, high},
                                                    {0, high, low},
                                                    {1, low, low},
                                                    {0, high, high},
                                                    {0, low, low},
                                                    {0, low, 0},
                                                    {0, -1, high}},
                                                   3))
                       .map;
  expect_right(map, map, KernelRegion::hypercube({3, 3}, {1, 1}).offsets({1, 1}));
  expect_right(map, map, {high, 0, 0, high, 1, -high, low, low});
}

TEST(KernelMap, IsEmptyWhereASideIs) {
  const auto nothing = CoordinateMap::insert(at::empty({0, 3}, at::kInt)).map;
  const auto one = CoordinateMap::insert(to_tensor({{0, 4, 4}}, 3)).map;
  const auto offsets = KernelRegion::hypercube({3, 3}, {1, 1}).offsets({1, 1});
  for (const auto& [in, out] : {std::pair{nothing, nothing}, {nothing, one}, {one, nothing}, {one, one}})
    expect_right(in, out, offsets);
}

TEST(KernelMap, IsTheSameForAnyNumberOfThreads) {
  const auto fine = CoordinateMap::insert(random_cloud(60000, 3, 0, 50, 2, 8)).map;
  const auto coarse = fine->strided(AxisValues{2, 2, 2});
  const auto offsets = KernelRegion::hypercube({3, 3, 3}, {1, 1, 1}).offsets({1, 1, 1});
  for (const auto& out : {fine, coarse}) {
    std::vector<at::Tensor> expected;
    for (const int threads : {1, 2, 4}) {
      at::set_num_threads(threads);
      const KernelMapPtr map = KernelMap::build(fine, out, offsets);
      for (int64_t k = 0; k < 27; ++k) {
        if (threads == 1) expected.push_back(map->rows(k));
        EXPECT_TRUE(at::equal(map->rows(k), expected[k]));
      }
    }
  }
  at::set_num_threads(1);
}

TEST(KernelMap, ListsItsRowsForPooling) {
  const auto fine = CoordinateMap::insert(random_cloud(300, 2, -9, 9, 2, 9)).map;
  const auto coarse = fine->strided(AxisValues{2, 2});
  const KernelMapPtr map = KernelMap::build(fine, coarse, KernelRegion::hypercube({3, 3}, {1, 1}).offsets({1, 1}));
  std::vector<std::vector<int64_t>> expected(coarse->size());
  for (int64_t k = 0; k < 9; ++k) {
    const at::Tensor rows = map->rows(k);
    for (int64_t i = 0; i < rows.size(1); ++i)
      expected[rows[1][i].item<int64_t>()].push_back(rows[0][i].item<int64_t>());
  }
  const RowMapPtr rows = map->row_map();
  for (int64_t row = 0; row < coarse->size(); ++row)
    EXPECT_EQ(std::vector<int64_t>(rows->columns().begin() + rows->bounds()[row],
                                   rows->columns().begin() + rows->bounds()[row + 1]),
              expected[row]);
}

TEST(KernelMap, KeepsNoPairsUntilAskedWhenDeferred) {
  const auto map = CoordinateMap::insert(random_cloud(100, 3, -3, 3, 1, 4)).map;
  const auto offsets = KernelRegion::hypercube({3, 3, 3}, {1, 1, 1}).offsets({1, 1, 1});
  const KernelMapPtr deferred = KernelMap::deferred(map, map, offsets), built = KernelMap::build(map, map, offsets);
  EXPECT_EQ(deferred->bytes(), 0);
  EXPECT_EQ(deferred->offsets(), offsets);
  EXPECT_EQ(deferred->transposed()->offsets()[0], -offsets[0]);
  EXPECT_EQ(deferred->bytes(), 0);
  for (int64_t k = 0; k < 27; ++k) EXPECT_TRUE(at::equal(deferred->rows(k), built->rows(k)));
  EXPECT_EQ(deferred->bytes(), built->bytes());
}

TEST(KernelMap, SharesTheListsOfEqualAndMirroredOffsets) {
  const auto map = CoordinateMap::insert(random_cloud(300, 2, -9, 9, 2, 8)).map;
  const std::vector<int64_t> offsets = {1, 0, 0, 0, 1, 0, -1, 0, 0, 2, 0, 0, -1, 0};
  expect_right(map, map, offsets);
  expect_right(map, map->strided(AxisValues{2, 2}), offsets);
  const KernelMapPtr kernel = KernelMap::build(map, map, offsets);
  EXPECT_EQ(kernel->pairs(0).in, kernel->pairs(2).in);
  EXPECT_EQ(kernel->pairs(0).in, kernel->pairs(3).out);
}

TEST(KernelMap, CountsMoreThanTwoToThe31Pairs) {
  // A kernel that looks at its own place 2^11 + 1 times, over 2^20 points: equal offsets share one list.
  constexpr int64_t points = int64_t{1} << 20, volume = (int64_t{1} << 11) + 1;
  std::vector<int32_t> rows(2 * points, 0);
  for (int64_t i = 0; i < points; ++i) rows[2 * i + 1] = static_cast<int32_t>(i);
  const auto map = CoordinateMap::insert(at::from_blob(rows.data(), {points, 2}, at::kInt)).map;
  const KernelMapPtr kernel = KernelMap::build(map, map, std::vector<int64_t>(volume, 0));
  EXPECT_EQ(kernel->pair_count(), points * volume);
  EXPECT_GT(kernel->pair_count(), int64_t{1} << 31);
  EXPECT_LT(kernel->bytes(), int64_t{1} << 26);
}

TEST(KernelMap, RefusesMapsOfDifferentDimension) {
  const auto a = CoordinateMap::insert(at::zeros({1, 3}, at::kInt)).map;
  const auto b = CoordinateMap::insert(at::zeros({1, 4}, at::kInt)).map;
  EXPECT_THROW(KernelMap::build(a, b, std::vector<int64_t>{0, 0}), Error);
  EXPECT_THROW(KernelMap::build(a, a, std::vector<int64_t>{0, 0, 0}), Error);
}

}  // namespace
}  // namespace lockstep::sparse
