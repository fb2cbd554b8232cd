// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::points {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Point = std::array<float, 3>;

std::vector<Point> random_points(int64_t count, float most) {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed)
  std::uniform_real_distribution<float> place(-most, most);
  std::vector<Point> points(count);
  for (Point& point : points) point = {place(random), place(random), place(random)};
  return points;
}

/// Against a map from cells to their points.
void expect_cells(const std::vector<Point>& points, double side) {
  std::map<std::array<int32_t, 3>, std::vector<int32_t>> expected;
  for (size_t i = 0; i < points.size(); ++i) {
    std::array<int32_t, 3> cell;
    for (size_t axis = 0; axis < 3; ++axis)
      cell[axis] = static_cast<int32_t>(std::floor(static_cast<double>(points[i][axis]) / side));
    expected[cell].push_back(static_cast<int32_t>(i));
  }
  const Cells cells = cells_of("test", points, side);
  ASSERT_EQ(cells.size(), std::ssize(expected));
  int64_t number = 0;
  for (const auto& [place, inside] : expected) {
    EXPECT_EQ(cells.places[number], place);
    EXPECT_THAT(cells.points_of(number), testing::ElementsAreArray(inside));
    ++number;
  }
}

TEST(Cells, HoldTheirPointsInOrder) {
  expect_cells(random_points(3000, 3), 0.7);
  expect_cells(random_points(3000, 3), 1e-3);
  expect_cells({}, 1);
  expect_cells({{-0.5f, 0, 0}}, 1);
}

TEST(Cells, TakePointsThatLieInOrderAlready) {
  expect_cells({{-2.5f, 1, 1}, {-2.5f, 1, 2}, {0, -4, 0}, {7, 0, 0}}, 1);
}

TEST(Cells, AreAsFarApartAsMillions) {
  auto points = random_points(60, 1);
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t axis = 0; axis < 3; ++axis) points[i][axis] += (i >> axis & 1) == 0 ? -1e6f : 1e6f;
  expect_cells(points, 1);
}

TEST(Cells, SayWhatIsWrongWithAPoint) {
  auto points = random_points(5, 3);
  EXPECT_THAT([&] { cells_of("who", points, 1e-8); }, ThrowsMessage<Error>(HasSubstr("larger voxels")));
  EXPECT_THAT([&] { cells_of("who", points, 1e-10); }, ThrowsMessage<Error>(HasSubstr("within 1e9 voxels")));
  points[3][1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { cells_of("who", points, 1); },
              ThrowsMessage<Error>(HasSubstr("who: point 3 has the coordinate nan")));
}

}  // namespace
}  // namespace lockstep::points
