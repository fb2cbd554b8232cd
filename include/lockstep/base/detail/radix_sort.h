// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

/// Sorts by bits [low_bit, high_bit) of the items' keys; equal ones stay in order. digits(item, bit) is the item's key
/// from this bit on. Least significant digit first; digits that are the same everywhere cost a count and no pass.
template <class Item, class Digits>
void radix_sort(std::vector<Item>& items, int low_bit, int high_bit, const Digits& digits) {
  constexpr int kDigit = 11;
  std::vector<Item> other(items.size());
  for (int bit = low_bit; bit < high_bit && !items.empty(); bit += kDigit) {
    const uint32_t mask = (1u << std::min(kDigit, high_bit - bit)) - 1;
    std::array<size_t, 1 << kDigit> start{};
    for (const Item& item : items) ++start[digits(item, bit) & mask];
    if (start[digits(items[0], bit) & mask] == items.size()) continue;
    size_t sum = 0;
    for (size_t& count : start) sum += std::exchange(count, sum);
    for (const Item& item : items) other[start[digits(item, bit) & mask]++] = item;
    items.swap(other);
  }
}

}  // namespace lockstep
