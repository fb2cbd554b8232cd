// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<int64_t> values(const KeyedPermutation& permutation) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < permutation.size(); ++i) result.push_back(permutation(i));
  return result;
}

std::vector<int64_t> sizes_to_try() {
  std::vector<int64_t> sizes{0, 1, 10, 100, 1000, 60000};
  for (int bits = 1; bits <= 16; ++bits)
    for (int64_t near : {-1, 0, 1}) sizes.push_back((int64_t{1} << bits) + near);
  return sizes;
}

TEST(KeyedPermutation, GivesEveryNumberOnceAndItsInverseFindsIt) {
  for (int64_t size : sizes_to_try()) {
    const KeyedPermutation permutation({42, 7}, size);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = permutation(i);
      ASSERT_TRUE(value >= 0 && value < size) << "size " << size;
      ASSERT_FALSE(seen[static_cast<size_t>(value)]) << "size " << size << ", value " << value;
      seen[static_cast<size_t>(value)] = true;
      ASSERT_EQ(permutation.inverse(value), i) << "size " << size;
    }
  }
}

TEST(KeyedPermutation, HugeSizesStayInRangeAndInvert) {
  for (int64_t size : {int64_t{1'000'000'000'000}, (int64_t{1} << 62) + 1, INT64_MAX}) {
    const KeyedPermutation permutation({1, 2}, size);
    for (int64_t i = 0; i < 1000; ++i)
      for (int64_t position : {i, size - 1 - i, size / 1000 * i}) {
        const int64_t value = permutation(position);
        ASSERT_TRUE(value >= 0 && value < size);
        ASSERT_EQ(permutation.inverse(value), position);
      }
  }
}

// The expected orders come from a second implementation, in Python.
TEST(KeyedPermutation, IsTheSameOnEveryPlatform) {
  EXPECT_THAT(values(KeyedPermutation({1234, 5678}, 10)), testing::ElementsAre(0, 7, 6, 9, 1, 5, 2, 3, 4, 8));
  const KeyedPermutation large({1234, 5678}, 1'000'000'000'000);
  EXPECT_THAT((std::vector<int64_t>{large(0), large(1), large(2), large(999'999'999'999)}),
              testing::ElementsAre(788235790217, 496940719269, 774809867467, 180275550641));
}

TEST(KeyedPermutation, EveryOrderOfAFewNumbersIsAsLikely) {
  for (int64_t size = 2; size <= 6; ++size) {
    std::map<std::vector<int64_t>, int> count;
    constexpr int draws = 50'000;
    for (int i = 0; i < draws; ++i) ++count[values(KeyedPermutation({5, static_cast<uint64_t>(i)}, size))];
    const double orders = std::tgamma(size + 1.0), expected = draws / orders;
    double chi_square = 0;
    for (const auto& [order, times] : count) chi_square += (times - expected) * (times - expected) / expected;
    chi_square += (orders - static_cast<double>(count.size())) * expected;  // orders that never came
    const double freedom = orders - 1;
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << "size " << size;
  }
}

// Where the first two numbers of an order go says whether neighbours stay together.
TEST(KeyedPermutation, NeighboursAreScatteredUniformly) {
  for (int64_t size : {9, 16, 100, 257, 300, 1000}) {
    constexpr int cells = 8, draws = 40'000;
    std::vector<double> count(cells * cells);
    for (int i = 0; i < draws; ++i) {
      const KeyedPermutation order({6, static_cast<uint64_t>(i)}, size);
      ++count[static_cast<size_t>(order(0) * cells / size * cells + order(1) * cells / size)];
    }
    // What each cell holds if all ordered pairs of two different numbers are as likely.
    std::vector<double> width(cells);
    for (int64_t value = 0; value < size; ++value) ++width[static_cast<size_t>(value * cells / size)];
    double chi_square = 0, used = 0;
    for (size_t a = 0; a < cells; ++a)
      for (size_t b = 0; b < cells; ++b) {
        const double pairs = width[a] * (width[b] - (a == b));
        const double expected = draws * pairs / static_cast<double>(size * (size - 1));
        const double observed = count[a * cells + b];
        if (expected == 0) {
          EXPECT_EQ(observed, 0);
          continue;
        }
        chi_square += (observed - expected) * (observed - expected) / expected;
        ++used;
      }
    EXPECT_LT(chi_square, used - 1 + 5 * std::sqrt(2 * (used - 1))) << "size " << size;
  }
}

TEST(KeyedPermutation, AnotherKeyOrSizeIsAnotherOrder) {
  EXPECT_NE(values(KeyedPermutation({1, 2}, 100)), values(KeyedPermutation({1, 3}, 100)));
  EXPECT_NE(values(KeyedPermutation({1, 2}, 100)), values(KeyedPermutation({2, 2}, 100)));
  const KeyedPermutation shorter({1, 2}, 127), longer({1, 2}, 128);
  int same = 0;
  for (int64_t i = 0; i < 127; ++i) same += shorter(i) == longer(i);
  EXPECT_LT(same, 10);
}

TEST(KeyedPermutation, ANegativeSizeIsAnError) {
  EXPECT_THROW(KeyedPermutation({1, 2}, -1), Error);
}

}  // namespace
}  // namespace lockstep
