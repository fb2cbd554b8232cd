// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/points/detail/sorted_keys.h"
#include "lockstep/sparse/coordinate_map.h"

namespace lockstep::sparse {

/// Pairs (input position, output position), ascending in both.
class PairList {
 public:
  PairList() = default;
  explicit PairList(int64_t count) : data_(new int32_t[2 * count]), count_(count) {}
  /// (0, 0), (1, 1), ...: both sides are one array.
  static PairList identity(int64_t count);

  int32_t* in() const { return data_.get(); }
  int32_t* out() const { return one_array_ ? data_.get() : data_.get() + count_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * (one_array_ ? 4 : 8); }

 private:
  std::unique_ptr<int32_t[]> data_;
  int64_t count_ = 0;
  bool one_array_ = false;
};

/// A layout that covers both maps: their own where they share one. Throws Error where 128 bits don't hold them.
points::KeyLayout common_layout(const CoordinateMap& a, const CoordinateMap& b);

/// The pairs with in = out + offset for each offset k with wanted[k]; the other lists stay empty.
std::vector<PairList> search_pairs(const CoordinateMap& in, const CoordinateMap& out, std::span<const int64_t> offsets,
                                   const std::vector<bool>& wanted);

}  // namespace lockstep::sparse
