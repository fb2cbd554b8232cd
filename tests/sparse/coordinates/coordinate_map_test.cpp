// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/coordinate_map.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "support/clouds.h"

namespace lockstep::sparse {
namespace {

using test::Point;
using test::random_cloud;
using test::rows_of;
using test::to_points;
using test::to_tensor;

constexpr int64_t kLow = std::numeric_limits<int32_t>::min();
constexpr int64_t kHigh = std::numeric_limits<int32_t>::max();

int64_t floor_to(int64_t value, int64_t step) {
  return static_cast<int64_t>(std::floor(static_cast<double>(value) / static_cast<double>(step))) * step;
}

void expect_sorted(const CoordinateMap& map) {
  const auto points = to_points(map.coordinates());
  std::set<int64_t> rows;
  for (int64_t i = 0; i < map.size(); ++i) rows.insert(map.row_at(i));
  EXPECT_EQ(static_cast<int64_t>(rows.size()), map.size());
  for (int64_t i = 1; i < map.size(); ++i) EXPECT_LT(points[map.row_at(i - 1)], points[map.row_at(i)]);
}

TEST(CoordinateMap, KeepsTheFirstOfEqualRowsInTheOrderGiven) {
  for (const int64_t axes : {1, 2, 3, 4, 5, 8}) {
    const at::Tensor cloud = random_cloud(500, axes, -2, 2, 3, 7);
    const auto inserted = CoordinateMap::insert(cloud);
    std::vector<Point> expected;
    std::vector<int64_t> unique, inverse;
    std::map<Point, int64_t> seen;
    const auto points = to_points(cloud);
    for (size_t i = 0; i < points.size(); ++i) {
      const auto [at, fresh] = seen.emplace(points[i], static_cast<int64_t>(expected.size()));
      if (fresh) expected.push_back(points[i]), unique.push_back(static_cast<int64_t>(i));
      inverse.push_back(at->second);
    }
    EXPECT_EQ(to_points(inserted.map->coordinates()), expected);
    expect_sorted(*inserted.map);
    if (expected.size() == points.size()) {
      EXPECT_FALSE(inserted.unique.defined());
      continue;
    }
    EXPECT_TRUE(at::equal(inserted.unique, at::tensor(unique)));
    EXPECT_TRUE(at::equal(inserted.inverse, at::tensor(inverse)));
  }
}

TEST(CoordinateMap, CopiesWhatItIsGiven) {
  at::Tensor given = to_tensor({{0, 1}, {0, 2}}, 2);
  const auto map = CoordinateMap::insert(given).map;
  given.fill_(9);
  EXPECT_EQ(to_points(map->coordinates()), (std::vector<Point>{{0, 1}, {0, 2}}));
  const at::Tensor strided = to_tensor({{0, 3}, {7, 7}, {0, 1}, {7, 7}}, 2).slice(0, 0, 4, 2);
  EXPECT_EQ(to_points(CoordinateMap::insert(strided).map->coordinates()), (std::vector<Point>{{0, 3}, {0, 1}}));
}

TEST(CoordinateMap, RoundsDownWithAStrideNegativesToo) {
  for (const AxisValues& stride : {AxisValues{2, 2, 2}, {3, 1, 4}, {1000, 1000, 1000}, {1, 1, 1}}) {
    const auto map = CoordinateMap::insert(random_cloud(400, 3, -9, 9, 2, 3)).map;
    std::set<Point> expected;
    for (Point point : to_points(map->coordinates())) {
      for (int axis = 0; axis < 3; ++axis) point[axis + 1] = floor_to(point[axis + 1], stride[axis]);
      expected.insert(point);
    }
    EXPECT_EQ(to_points(map->strided(stride)->coordinates()), std::vector<Point>(expected.begin(), expected.end()));
  }
}

TEST(CoordinateMap, ReachesTheLimitsOfInt32) {
  const std::vector<Point> corners = {{0, kLow, kHigh, 0}, {0, kHigh, kLow, -1}, {1 << 28, 0, 0, kLow}, {3, 5, 5, 5}};
  const auto map = CoordinateMap::insert(to_tensor(corners, 4)).map;
  EXPECT_EQ(to_points(map->coordinates()), corners);
  expect_sorted(*map);
  EXPECT_TRUE(at::equal(map->find(map->coordinates()), at::arange(4)));
  EXPECT_EQ(to_points(map->strided(AxisValues{2, 2, 2})->coordinates())[0], (Point{0, kLow, kHigh - 1, 0}));
  EXPECT_THROW(map->strided(AxisValues{3, 3, 3}), Error);  // -2^31 would become -2147483649
  EXPECT_THROW(map->expanded(AxisValues{0, 0, 0, 1, 0, 0}, AxisValues{1, 1, 1}), Error);
}

TEST(CoordinateMap, SaysThatABoxDoesNotFitAKey) {
  std::vector<Point> corners = {{0, kLow, kLow, kLow, kLow}, {1, kHigh, kHigh, kHigh, kHigh}};
  try {
    CoordinateMap::insert(to_tensor(corners, 5));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected at most 128"));
  }
}

TEST(CoordinateMap, HoldsNothingAndOnePoint) {
  const auto nothing = CoordinateMap::insert(at::empty({0, 4}, at::kInt)).map;
  EXPECT_EQ(nothing->size(), 0);
  EXPECT_EQ(nothing->strided(AxisValues{2, 2, 2})->size(), 0);
  EXPECT_EQ(nothing->origins()->size(), 0);
  EXPECT_EQ(nothing->expanded(AxisValues{0, 0, 1}, AxisValues{1, 1, 1})->size(), 0);
  EXPECT_TRUE(at::equal(nothing->find(to_tensor({{0, 1, 2, 3}}, 4)), at::full({1}, -1, at::kLong)));
  const auto one = CoordinateMap::insert(to_tensor({{5, -7, 8, 9}}, 4)).map;
  EXPECT_EQ(to_points(one->strided(AxisValues{64, 64, 64})->coordinates())[0], (Point{5, -64, 0, 0}));
  EXPECT_EQ(to_points(one->origins()->coordinates())[0], (Point{5, 0, 0, 0}));
}

TEST(CoordinateMap, ExpandsByOffsetsAndKeepsTheGrid) {
  const auto map = CoordinateMap::insert(random_cloud(60, 2, -9, 9, 2, 11)).map;
  const AxisValues offsets = {0, 0, 1, 0, 0, -3, -1, 2};
  for (const int64_t step : {1, 2}) {
    std::set<Point> expected;
    for (const Point& point : to_points(map->coordinates()))
      for (int k = 0; k < 4; ++k) {
        const Point moved = {point[0], point[1] + offsets[2 * k], point[2] + offsets[2 * k + 1]};
        if (moved[1] % step == 0 && moved[2] % step == 0) expected.insert(moved);
      }
    EXPECT_EQ(to_points(map->expanded(offsets, AxisValues{step, step})->coordinates()),
              std::vector<Point>(expected.begin(), expected.end()));
  }
}

TEST(CoordinateMap, UnitesPrunesAndFinds) {
  const auto a = CoordinateMap::insert(random_cloud(90, 3, -3, 3, 2, 1)).map;
  const auto b = CoordinateMap::insert(random_cloud(90, 3, 500, 505, 4, 2)).map;
  const std::vector<CoordinateMapPtr> both = {a, b, a};
  std::set<Point> expected;
  for (const auto& map : both)
    for (const Point& point : to_points(map->coordinates())) expected.insert(point);
  EXPECT_EQ(to_points(CoordinateMap::united(both)->coordinates()),
            std::vector<Point>(expected.begin(), expected.end()));

  const at::Tensor keep = at::arange(a->size()).remainder(3).eq(1);
  EXPECT_TRUE(at::equal(a->pruned(keep)->coordinates(), a->coordinates().index({keep})));

  const at::Tensor queries = random_cloud(300, 3, -4, 4, 3, 5);
  const auto rows = rows_of(a->coordinates());
  const at::Tensor found = a->find(queries);
  const auto points = to_points(queries);
  for (size_t i = 0; i < points.size(); ++i) {
    const auto at = rows.find(points[i]);
    EXPECT_EQ(found[i].item<int64_t>(), at == rows.end() ? -1 : at->second);
  }
}

TEST(CoordinateMap, RefusesWhatIsNoCoordinateTable) {
  EXPECT_THROW(CoordinateMap::insert(at::zeros({3}, at::kInt)), Error);
  EXPECT_THROW(CoordinateMap::insert(at::zeros({3, 1}, at::kInt)), Error);
  EXPECT_THROW(CoordinateMap::insert(at::zeros({3, 10}, at::kInt)), Error);
  EXPECT_THROW(CoordinateMap::insert(at::zeros({3, 4}, at::kLong)), Error);
  EXPECT_THROW(CoordinateMap::insert(at::Tensor()), Error);
  EXPECT_THROW(CoordinateMap::insert(to_tensor({{0, 1}, {-1, 1}}, 2)), Error);
  const auto map = CoordinateMap::insert(at::zeros({1, 4}, at::kInt)).map;
  EXPECT_THROW(map->strided(AxisValues{2, 2}), Error);
  EXPECT_THROW(map->strided(AxisValues{2, 0, 2}), Error);
  EXPECT_THROW(map->pruned(at::ones({2}, at::kBool)), Error);
  EXPECT_THROW(map->find(at::zeros({1, 3}, at::kInt)), Error);
}

}  // namespace
}  // namespace lockstep::sparse
