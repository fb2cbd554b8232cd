// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/points/detail/key_layout.h"

namespace lockstep::points {

/// Keys in ascending order, all different. One of the two vectors is in use, as layout.wide() says; both end with a
/// sentinel greater than any key.
struct SortedKeys {
  KeyLayout layout;
  std::vector<uint64_t> narrow;
  std::vector<Key128> wide;

  int64_t size() const { return static_cast<int64_t>(layout.wide() ? wide.size() : narrow.size()) - 1; }
  template <class Key>
  const std::vector<Key>& get() const;
  template <class Key>
  std::vector<Key>& get() {
    return const_cast<std::vector<Key>&>(std::as_const(*this).get<Key>());
  }
};

template <>
inline const std::vector<uint64_t>& SortedKeys::get() const {
  return narrow;
}
template <>
inline const std::vector<Key128>& SortedKeys::get() const {
  return wide;
}

/// The rows of `coordinates` in ascending order, equal ones in order of their rows. Where they ascend as they lie and
/// all differ, the two lists are not made.
struct SortedRows {
  SortedKeys keys;                ///< of the coordinates that differ
  std::vector<int32_t> rows;      ///< rows[position]: the row at a position
  std::vector<uint8_t> is_first;  ///< whether the coordinate differs from that of the position before
};
SortedRows sort_rows(const KeyLayout& layout, const int32_t* coordinates, int64_t rows);

/// Packs coordinates that ascend and all differ; nothing where they don't.
std::optional<SortedKeys> pack_ascending(const KeyLayout& layout, const int32_t* coordinates, int64_t rows);

/// The same keys in another layout; it must cover them.
SortedKeys repack(const SortedKeys& keys, const KeyLayout& layout);

/// The coordinates rounded down to multiples of `stride`, one positive value for each spatial axis, in a layout that
/// covers them.
SortedKeys round_down(const SortedKeys& keys, std::span<const int64_t> stride, const KeyLayout& layout);

}  // namespace lockstep::points
