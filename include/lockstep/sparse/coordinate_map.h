// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/sparse/detail/device_copies.h"

namespace lockstep::points {
struct Box;
class SortedCoordinates;
struct SortedKeys;
}  // namespace lockstep::points

namespace lockstep::sparse {

namespace cuda {
struct MadeMap;
}

/// One value for each spatial axis: a stride, a kernel size, a dilation.
using AxisValues = std::vector<int64_t>;

/// "[2, 2, 1]".
std::string to_string(std::span<const int64_t> values);

class CoordinateMap;
using CoordinateMapPtr = std::shared_ptr<const CoordinateMap>;

/// A set of different coordinates (batch index, then D integers each), with a row number for each. It never changes.
///
/// Rows keep the order in which coordinates were given. Beside it the map holds them sorted (by batch index, then
/// axis by axis): `order()[position]` is the row at a sorted position. Maps that are derived from others (strided,
/// expanded, united, origins) have their rows in sorted order.
class CoordinateMap {
 public:
  struct Inserted;

  /// The different ones among `coordinates`, int32 [N, 1 + D] with 1 <= D <= 8, which are copied. Of equal rows the
  /// first one stays, and rows that stay keep their order. Coordinates on a GPU are sorted there, as are those of maps
  /// strided from this one; rows are the same, and the map is one on the CPU. Throws Error on a wrong type or shape, on
  /// 2^31 rows or more, and where the coordinates' box does not fit a key of 128 bits.
  static Inserted insert(const at::Tensor& coordinates);
  /// Coordinates that are sorted already, as they are: nothing is copied, packed or sorted.
  static CoordinateMapPtr of(const points::SortedCoordinates& coordinates);

  int64_t size() const { return size_; }
  int64_t dimension() const { return coordinates_.size(1) - 1; }

  /// int32 [size, 1 + D], row by row. Not to be written to.
  const at::Tensor& coordinates() const { return coordinates_; }

  /// The row at each sorted position; empty where rows are in sorted order already.
  std::span<const int32_t> order() const { return order_; }
  int64_t row_at(int64_t position) const { return order_.empty() ? position : order_[position]; }

  /// Rounds every coordinate down to a multiple of `stride` (negative ones too: -1 becomes -2 at stride 2).
  CoordinateMapPtr strided(std::span<const int64_t> stride) const;

  /// All c + o for a coordinate c and an `offset` o (one after the other, D values each) that are multiples of
  /// `stride`. Throws Error where a sum leaves int32.
  CoordinateMapPtr expanded(std::span<const int64_t> offsets, std::span<const int64_t> stride) const;

  /// (b, 0, ..., 0) for each batch index b that occurs.
  CoordinateMapPtr origins() const;

  /// The rows for which `keep`, bool [size], holds; they keep their order.
  CoordinateMapPtr pruned(const at::Tensor& keep) const;

  /// What occurs in one of the maps at least. Throws Error unless all have the same dimension.
  static CoordinateMapPtr united(std::span<const CoordinateMapPtr> maps);

  /// The row of each of `coordinates`, int32 [M, 1 + D]: int64 [M], -1 where there is none.
  at::Tensor find(const at::Tensor& coordinates) const;

  /// Bytes that this map keeps.
  int64_t bytes() const;

  const points::SortedKeys& keys() const { return *keys_; }
  const points::Box& box() const { return *box_; }
  const DeviceCopies& device_copies() const { return copies_; }

 private:
  CoordinateMap() = default;
  static CoordinateMapPtr from_device(at::Device device, cuda::MadeMap& made);
  static CoordinateMapPtr from_sorted(at::Tensor coordinates, std::shared_ptr<const points::Box> box,
                                      std::shared_ptr<const points::SortedKeys> keys);

  at::Tensor coordinates_;
  int64_t size_ = 0;
  std::vector<int32_t> order_;
  std::shared_ptr<const points::SortedKeys> keys_;
  std::shared_ptr<const points::Box> box_;
  DeviceCopies copies_;
  std::optional<at::Device> device_;  ///< where it was sorted, if not on the CPU
};

/// What insert() did. Where all coordinates were different, both tensors are undefined and stand for 0, 1, 2, ...
struct CoordinateMap::Inserted {
  CoordinateMapPtr map;
  at::Tensor unique;   ///< int64 [map->size()]: the row of the input that each row of the map came from
  at::Tensor inverse;  ///< int64 [N]: the row of the map for each row of the input
};

}  // namespace lockstep::sparse
