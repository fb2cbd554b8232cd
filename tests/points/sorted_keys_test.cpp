// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/sorted_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace lockstep::points {
namespace {

using Row = std::vector<int32_t>;

/// Rows (batch index, D values), some of them equal. Keys are narrow, narrow beside the row's number, or wide, as the
/// values' range says.
std::vector<Row> random_rows(int64_t count, int64_t columns, int32_t most) {
  std::mt19937 random(static_cast<uint32_t>(count + most));  // NOLINT(bugprone-random-generator-seed)
  std::vector<Row> rows(count, Row(columns));
  for (Row& row : rows) {
    row[0] = static_cast<int32_t>(random() % 3);
    for (int64_t column = 1; column < columns; ++column)
      row[column] = static_cast<int32_t>(random() % (2 * static_cast<uint32_t>(most) + 1)) - most;
  }
  for (int64_t i = 0; i + 7 < count; i += 5) rows[i + 7] = rows[i];
  return rows;
}

std::vector<int32_t> flat(const std::vector<Row>& rows) {
  std::vector<int32_t> values;
  for (const Row& row : rows) values.insert(values.end(), row.begin(), row.end());
  return values;
}

KeyLayout layout_of(const std::vector<Row>& rows) {
  return {"test",
          Box::around(flat(rows).data(), static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size()))};
}

template <class Key>
std::vector<Row> unpack(const SortedKeys& keys) {
  EXPECT_EQ(keys.get<Key>().back(), ~Key{0});
  std::vector<Row> rows(keys.size(), Row(keys.layout.columns()));
  for (int64_t i = 0; i < keys.size(); ++i) keys.layout.unpack(keys.get<Key>()[i], rows[i].data());
  return rows;
}
std::vector<Row> rows_of(const SortedKeys& keys) {
  return keys.layout.wide() ? unpack<Key128>(keys) : unpack<uint64_t>(keys);
}

std::vector<Row> sorted_set(std::vector<Row> rows) {
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());  // clang 14 can't compile std::ranges::unique
  return rows;
}

class SortedKeysOfEachWidth : public testing::TestWithParam<int32_t> {};

TEST_P(SortedKeysOfEachWidth, RowsAreSortedAndEqualOnesKeepTheirOrder) {
  const auto rows = random_rows(1000, 4, GetParam());
  const SortedRows sorted = sort_rows(layout_of(rows), flat(rows).data(), 1000);
  EXPECT_EQ(rows_of(sorted.keys), sorted_set(rows));
  std::vector<int32_t> expected(1000);
  for (int32_t i = 0; i < 1000; ++i) expected[i] = i;
  std::ranges::stable_sort(expected, {}, [&](int32_t i) -> const Row& { return rows[i]; });
  EXPECT_EQ(sorted.rows, expected);
  for (size_t i = 0; i < 1000; ++i)
    EXPECT_EQ(sorted.is_first[i] != 0, i == 0 || rows[expected[i]] != rows[expected[i - 1]]);
}

TEST_P(SortedKeysOfEachWidth, RowsThatAscendAreOnlyPacked) {
  const auto rows = sorted_set(random_rows(300, 4, GetParam()));
  const auto count = static_cast<int64_t>(rows.size());
  const SortedRows sorted = sort_rows(layout_of(rows), flat(rows).data(), count);
  EXPECT_TRUE(sorted.rows.empty() && sorted.is_first.empty());
  EXPECT_EQ(rows_of(sorted.keys), rows);
  const auto packed = pack_ascending(layout_of(rows), flat(rows).data(), count);
  ASSERT_TRUE(packed);
  EXPECT_EQ(rows_of(*packed), rows);
}

TEST_P(SortedKeysOfEachWidth, RowsThatDoNotAscendAreNotPacked) {
  auto rows = sorted_set(random_rows(300, 4, GetParam()));
  const auto count = static_cast<int64_t>(rows.size());
  std::swap(rows[count - 1], rows[count - 2]);
  EXPECT_FALSE(pack_ascending(layout_of(rows), flat(rows).data(), count));
  rows[count - 1] = rows[count - 2];
  EXPECT_FALSE(pack_ascending(layout_of(rows), flat(rows).data(), count));
}

TEST_P(SortedKeysOfEachWidth, AnotherLayoutHasTheSameCoordinates) {
  const auto rows = sorted_set(random_rows(300, 4, GetParam()));
  const auto keys = pack_ascending(layout_of(rows), flat(rows).data(), static_cast<int64_t>(rows.size()));
  for (const int64_t wider : {int64_t{0}, int64_t{1} << 30}) {
    Box box = Box::around(flat(rows).data(), static_cast<int64_t>(rows.size()), 4);
    for (size_t column = 1; column < 4; ++column) box.low[column] -= wider;
    EXPECT_EQ(rows_of(repack(*keys, KeyLayout("test", box))), rows);
  }
}

TEST_P(SortedKeysOfEachWidth, CoordinatesAreRoundedDown) {
  const auto rows = sorted_set(random_rows(300, 4, GetParam()));
  const auto keys = pack_ascending(layout_of(rows), flat(rows).data(), static_cast<int64_t>(rows.size()));
  for (const std::vector<int64_t>& stride : {std::vector<int64_t>{2, 2, 2}, {3, 1, 8}}) {
    auto expected = rows;
    for (Row& row : expected)
      for (int axis = 0; axis < 3; ++axis) row[axis + 1] = static_cast<int32_t>(floor_to(row[axis + 1], stride[axis]));
    expected = sorted_set(expected);
    EXPECT_EQ(rows_of(round_down(*keys, stride, layout_of(expected))), expected);
    auto both = expected;
    both.insert(both.end(), rows.begin(), rows.end());
    EXPECT_EQ(rows_of(round_down(*keys, stride, layout_of(both))), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranges, SortedKeysOfEachWidth, testing::Values(4, 200'000, 500'000'000));

TEST(SortedKeys, ThereMayBeNone) {
  const KeyLayout layout("test", Box::around(nullptr, 0, 4));
  EXPECT_EQ(sort_rows(layout, nullptr, 0).keys.size(), 0);
  EXPECT_EQ(pack_ascending(layout, nullptr, 0)->size(), 0);
}

TEST(SortedKeys, FloorToGoesDownBelowZeroToo) {
  for (const int64_t stride : {1, 2, 3, 8, 10})
    for (int64_t value = -40; value <= 40; ++value) {
      const int64_t floor = floor_to(value, stride);
      EXPECT_TRUE(floor % stride == 0 && floor <= value && value < floor + stride);
    }
}

}  // namespace
}  // namespace lockstep::points
