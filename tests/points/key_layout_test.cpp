// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/key_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::points {
namespace {

using Row = std::vector<int32_t>;

/// All coordinates of a box, in ascending order.
std::vector<Row> all_of(const Box& box) {
  std::vector<Row> rows = {{}};
  for (size_t column = 0; column < box.low.size(); ++column) {
    std::vector<Row> longer;
    for (const Row& row : rows)
      for (int64_t value = box.low[column]; value <= box.high[column]; ++value) {
        longer.push_back(row);
        longer.back().push_back(static_cast<int32_t>(value));
      }
    rows.swap(longer);
  }
  return rows;
}

template <class Key>
void expect_keys_in_order(const KeyLayout& layout, const std::vector<Row>& rows) {
  Key last = 0;
  for (const Row& row : rows) {
    const Key key = layout.pack<Key>(row.data());
    EXPECT_LT(last, key);
    last = key;
    Row back(row.size());
    layout.unpack(key, back.data());
    EXPECT_EQ(back, row);
    EXPECT_TRUE(layout.holds(row.data()));
  }
}

TEST(KeyLayout, KeysCompareAsCoordinatesDo) {
  const Box box{{0, -3, 62, -1}, {2, 1, 66, -1}};
  const KeyLayout layout("test", box);
  EXPECT_FALSE(layout.wide());
  expect_keys_in_order<uint64_t>(layout, all_of(box));
  expect_keys_in_order<Key128>(layout, all_of(box));
}

TEST(KeyLayout, BoxesOfAllInt32TakeWideKeys) {
  constexpr int64_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
  const KeyLayout layout("test", {{0, kLow, kLow, kLow}, {9, kHigh, kHigh, kHigh}});
  EXPECT_TRUE(layout.wide());
  const auto low = static_cast<int32_t>(kLow), high = static_cast<int32_t>(kHigh);
  expect_keys_in_order<Key128>(layout, {{0, low, low, low}, {0, low, high, 0}, {3, 0, 0, 0}, {9, high, high, high}});
}

TEST(KeyLayout, SaysThatABoxNeedsTooManyBits) {
  const Box box{{0, -5, -5, -5, -5}, {0, int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31}};
  EXPECT_THAT([&] { KeyLayout("who", box); }, testing::ThrowsMessage<Error>(testing::AllOf(
                                                  testing::StartsWith("who: "), testing::HasSubstr("at most 128"))));
}

/// Neighbours are found by adding to keys, so a sum must be the neighbour's key or nobody's.
TEST(KeyLayout, AShiftLeadsToTheNeighbourOrToNoKey) {
  const Box box{{0, 0, 63}, {1, 3, 66}};
  const KeyLayout layout("test", box);
  const auto rows = all_of(box);
  std::set<uint64_t> keys;
  for (const Row& row : rows) keys.insert(layout.pack<uint64_t>(row.data()));
  for (int64_t x = -3; x <= 3; ++x)
    for (int64_t y = -3; y <= 3; ++y) {
      const std::vector<int64_t> offset = {x, y};
      ASSERT_TRUE(layout.reaches(offset));
      for (const Row& row : rows) {
        const Row moved = {row[0], row[1] + static_cast<int32_t>(x), row[2] + static_cast<int32_t>(y)};
        const uint64_t key = layout.pack<uint64_t>(row.data()) + layout.shift<uint64_t>(offset);
        const bool inside = std::ranges::find(rows, moved) != rows.end();
        EXPECT_EQ(keys.contains(key), inside);
        EXPECT_TRUE(!inside || key == layout.pack<uint64_t>(moved.data()));
      }
    }
  EXPECT_FALSE(layout.reaches(std::vector<int64_t>{int64_t{1} << 20, 0}));
}

TEST(KeyLayout, CoversTheBoxesThatItCanPack) {
  const KeyLayout layout("test", {{1, 0, 0}, {2, 9, 9}});
  EXPECT_TRUE(layout.covers({{1, 0, 0}, {2, 9, 9}}));
  EXPECT_TRUE(layout.covers({{2, 3, 3}, {2, 4, 4}}));
  EXPECT_TRUE(layout.covers(Box::around(nullptr, 0, 3)));
  EXPECT_FALSE(layout.covers({{0, 0, 0}, {2, 9, 9}}));
  EXPECT_FALSE(layout.covers({{1, -1, 0}, {2, 9, 9}}));
  EXPECT_FALSE(layout.covers({{1, 0, 0}, {2, 9, 10}}));
  EXPECT_FALSE(KeyLayout().covers({{1, 0, 0}, {2, 9, 9}}));
}

TEST(Box, IsTheSmallestAroundItsRows) {
  const Row rows = {0, -7, 4, 2, 5, 4, 1, 0, 9};
  const Box box = Box::around(rows.data(), 3, 3);
  EXPECT_EQ(box.low, (std::vector<int64_t>{0, -7, 4}));
  EXPECT_EQ(box.high, (std::vector<int64_t>{2, 5, 9}));
  Box sum = Box::around(nullptr, 0, 3);
  EXPECT_TRUE(sum.empty());
  sum.include(box);
  sum.include(Box::around(nullptr, 0, 3));
  sum.include({{0, 0, 0}, {5, 0, 0}});
  EXPECT_EQ(sum.low, (std::vector<int64_t>{0, -7, 0}));
  EXPECT_EQ(sum.high, (std::vector<int64_t>{5, 5, 9}));
}

}  // namespace
}  // namespace lockstep::points
