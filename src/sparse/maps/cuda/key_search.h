// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/points/detail/sorted_keys.h"
#include "sparse/cuda/portable.h"

namespace lockstep::sparse::cuda {

/// A KeyLayout as kernels take it, by value.
struct PlainLayout {
  static constexpr int kMostColumns = 9;
  int columns = 0;
  int shift[kMostColumns] = {};
  int64_t low[kMostColumns] = {};
  uint64_t mask[kMostColumns] = {};

  explicit PlainLayout(const points::KeyLayout& layout) {
    for (const points::KeyLayout::Field& field : layout.fields()) {
      low[columns] = field.low;
      mask[columns] = field.mask;
      shift[columns++] = field.shift;
    }
  }
  template <class Key>
  LOCKSTEP_HOST_DEVICE Key pack(const int32_t* coordinate) const {
    Key key = 0;
    for (int column = 0; column < columns; ++column)
      key |= static_cast<Key>(coordinate[column] - low[column]) << shift[column];
    return key;
  }
  template <class Key>
  LOCKSTEP_HOST_DEVICE int32_t value(Key key, int column) const {
    return static_cast<int32_t>(static_cast<int64_t>(static_cast<uint64_t>(key >> shift[column]) & mask[column]) +
                                low[column]);
  }
};

/// `value` rounded down to a multiple of `stride`.
LOCKSTEP_HOST_DEVICE inline int32_t round_down(int32_t value, int32_t stride) {
  int64_t quotient = value / stride;
  if (quotient * stride > value) --quotient;
  return static_cast<int32_t>(quotient * stride);
}

/// Where `wanted` stands among ascending keys, -1 where it does not.
template <class Key>
LOCKSTEP_HOST_DEVICE int64_t find_key(const Key* keys, int64_t count, Key wanted) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (keys[middle] < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && keys[low] == wanted ? low : -1;
}

LOCKSTEP_HOST_DEVICE inline int32_t row_at(const int32_t* order, int64_t position) {
  return order == nullptr ? static_cast<int32_t>(position) : order[position];
}

/// The sorted coordinates of a map, and how offsets move them.
template <class Key>
struct NeighbourSearch {
  const Key* in_keys;
  const int32_t* in_order;  ///< null where rows are sorted
  int64_t in_size;
  const Key* out_keys;
  const int32_t* out_order;
  int64_t out_size;
  const Key* shifts;  ///< 0 for an offset that reaches nothing, see `reaches`
  const uint8_t* reaches;
  int64_t offsets;

  /// The input row that an output meets at an offset, -1 where there is none. `item` is offset * out_size + position.
  LOCKSTEP_HOST_DEVICE int32_t find(int64_t item) const {
    const int64_t offset = item / out_size, position = item % out_size;
    if (!reaches[offset]) return -1;
    const int64_t found = find_key(in_keys, in_size, static_cast<Key>(out_keys[position] + shifts[offset]));
    return found < 0 ? -1 : row_at(in_order, found);
  }
};

}  // namespace lockstep::sparse::cuda
