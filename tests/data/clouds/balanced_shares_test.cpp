// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/balanced_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

using Shares = std::vector<std::vector<int64_t>>;

int64_t load(const Shares& shares, size_t from, size_t to, const std::vector<int64_t>& costs) {
  int64_t sum = 0;
  for (size_t share = from; share < to; ++share)
    for (const int64_t i : shares[share]) sum += costs[i];
  return sum;
}

/// The least that the larger half of these costs can have, each half with as many of them.
int64_t best_half(const std::vector<int64_t>& costs) {
  const int64_t total = std::reduce(costs.begin(), costs.end());
  int64_t best = total;
  for (uint32_t set = 0; set < 1u << costs.size(); ++set) {
    if (2 * static_cast<size_t>(std::popcount(set)) != costs.size()) continue;
    int64_t sum = 0;
    for (size_t i = 0; i < costs.size(); ++i) sum += (set >> i & 1) != 0 ? costs[i] : 0;
    best = std::min(best, std::max(sum, total - sum));
  }
  return best;
}

std::vector<int64_t> drawn_costs(size_t count, std::mt19937& random) {
  std::vector<int64_t> costs(count);
  for (int64_t& cost : costs) cost = std::uniform_int_distribution<int64_t>(20'000, 43'000)(random);
  return costs;
}

TEST(BalancedShares, DivideCostsEvenlyAndUseEachExampleOnce) {
  const std::vector<int64_t> costs{5, 9, 1, 7, 3, 8, 2, 6, 4};
  const auto shares = balanced_shares(costs, 3);
  std::set<int64_t> seen;
  for (size_t share = 0; share < 3; ++share) {
    EXPECT_NEAR(static_cast<double>(load(shares, share, share + 1, costs)), 15, 1);
    for (const int64_t i : shares[share]) EXPECT_TRUE(seen.insert(i).second);
    EXPECT_TRUE(std::ranges::is_sorted(shares[share]));
  }
  EXPECT_EQ(seen.size(), costs.size());
}

TEST(BalancedShares, OfOneExampleEachAreInAnOrderWhoseHalvesAreAsEvenAsCanBe) {
  std::mt19937 random(7);
  double over = 0;
  const int draws = 100;
  for (int draw = 0; draw < draws; ++draw) {
    const auto costs = drawn_costs(8, random);
    const auto shares = balanced_shares(costs, 8);
    for (const auto& share : shares) ASSERT_EQ(share.size(), 1);
    const int64_t larger = std::max(load(shares, 0, 4, costs), load(shares, 4, 8, costs));
    over += static_cast<double>(larger) / static_cast<double>(best_half(costs)) - 1;
  }
  EXPECT_LT(over / draws, 0.005);
}

TEST(BalancedShares, AreEvenWhicheverPowerOfTwoOfDevicesRunsThem) {
  std::mt19937 random(8);
  for (int draw = 0; draw < 20; ++draw) {
    const auto costs = drawn_costs(32, random);
    const auto shares = balanced_shares(costs, 8);
    const double total = static_cast<double>(std::reduce(costs.begin(), costs.end()));
    for (const size_t devices : {2u, 4u, 8u})
      for (size_t device = 0; device < devices; ++device) {
        const size_t each = 8 / devices;
        const auto mine = static_cast<double>(load(shares, device * each, (device + 1) * each, costs));
        EXPECT_NEAR(mine * static_cast<double>(devices) / total, 1, 0.02) << devices << " devices";
      }
  }
}

TEST(BalancedShares, MayBeEmpty) {
  const std::vector<int64_t> costs{4, 4};
  EXPECT_EQ(balanced_shares(costs, 4), (Shares{{0}, {}, {1}, {}}));
  EXPECT_EQ(balanced_shares({}, 2).size(), 2);
  EXPECT_THROW(balanced_shares(costs, 0), Error);
}

}  // namespace
}  // namespace lockstep::data
