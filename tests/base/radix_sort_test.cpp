// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/radix_sort.h"

#include <gtest/gtest.h>

#include "lockstep/numerics/philox.h"

namespace lockstep {
namespace {

struct Item {
  uint64_t key;
  size_t place;
  bool operator==(const Item&) const = default;
};

TEST(RadixSort, IsAStableSortByTheBitsItIsGiven) {
  for (const size_t count : {0, 1, 2, 5000})
    for (const auto& [low, high] : {std::pair(0, 64), {0, 11}, {3, 20}, {40, 41}, {5, 5}}) {
      std::vector<Item> items(count);
      for (size_t i = 0; i < count; ++i) items[i] = {RandomKey{7}.block(i / 2).pair(0), i};  // each key twice
      const auto bits = [low = low, high = high](const Item& item) {
        return high - low == 64 ? item.key : item.key >> low & ((uint64_t{1} << (high - low)) - 1);
      };
      std::vector<Item> expected = items;
      std::ranges::stable_sort(expected, {}, bits);
      radix_sort(items, low, high, [](const Item& item, int bit) { return static_cast<uint32_t>(item.key >> bit); });
      EXPECT_EQ(items, expected) << count << " items by bits " << low << " to " << high;
    }
}

}  // namespace
}  // namespace lockstep
