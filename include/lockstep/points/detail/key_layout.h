// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::points {

/// The wide key, for boxes that don't fit 64 bits.
using Key128 = unsigned __int128;

inline int64_t floor_to(int64_t value, int64_t stride) {
  // Powers of two, which nearly all strides are, need no division.
  if ((stride & (stride - 1)) == 0) return value & -stride;
  const int64_t quotient = value / stride;
  return (quotient - (quotient * stride > value)) * stride;
}

/// Bits that hold 0 .. count - 1.
inline int bits_for(int64_t count) {
  return std::bit_width(static_cast<uint64_t>(count - 1));
}

/// The smallest box that holds some coordinates: column 0 is the batch index, then the D spatial axes.
struct Box {
  std::vector<int64_t> low, high;  ///< both inclusive; low > high where there are no coordinates

  static Box around(const int32_t* coordinates, int64_t rows, int64_t columns);
  bool empty() const { return low.empty() || low[0] > high[0]; }
  void include(const Box& other);
};

/// How a coordinate is packed into one integer, batch index first, so that integers compare as coordinates do.
///
/// Each spatial field has a guard bit that no coordinate sets. Adding a constant to a key then moves the coordinate by
/// a fixed offset, and a move out of the box gives a key that no coordinate has: neighbours are found by comparing
/// `key + shift(offset)` with keys. That holds for every offset shorter than the box, and longer ones have no
/// neighbours. The batch field starts at 1, so no such sum is negative.
class KeyLayout {
 public:
  struct Field {
    int64_t low = 0;
    uint64_t mask = 0;
    int64_t extent = 0;  ///< values 0 <= x < extent are coordinates; the guard bit makes mask at least 2 extent - 1
    int shift = 0;
    bool operator==(const Field&) const = default;
  };

  KeyLayout() = default;
  /// Throws Error, naming `operation`, when the box needs more than 128 bits.
  KeyLayout(const char* operation, const Box& box);

  bool wide() const { return bits_ > 64; }
  int bits() const { return bits_; }
  int64_t columns() const { return static_cast<int64_t>(fields_.size()); }
  bool covers(const Box& box) const;
  bool holds(const int32_t* coordinate) const {
    for (size_t column = 0; column < fields_.size(); ++column) {
      const int64_t value = coordinate[column] - fields_[column].low;
      if (value < (column == 0 ? 1 : 0) || value >= fields_[column].extent) return false;
    }
    return true;
  }
  bool operator==(const KeyLayout&) const = default;

  template <class Key>
  Key pack(const int32_t* coordinate) const {
    Key key = 0;
    for (const Field& field : fields_) key |= static_cast<Key>(*coordinate++ - field.low) << field.shift;
    return key;
  }
  template <class Key>
  void unpack(Key key, int32_t* coordinate) const {
    for (const Field& field : fields_)
      *coordinate++ = static_cast<int32_t>(static_cast<int64_t>((key >> field.shift) & field.mask) + field.low);
  }
  /// What to add (modulo the key's width) to move a coordinate by `offset`, one value for each spatial axis.
  template <class Key>
  Key shift(std::span<const int64_t> offset) const {
    Key sum = 0;
    for (size_t axis = 0; axis < offset.size(); ++axis)
      sum += static_cast<Key>(offset[axis]) << fields_[axis + 1].shift;
    return sum;
  }
  /// Whether a move by `offset` can lead from one point of the box to another.
  bool reaches(std::span<const int64_t> offset) const;

  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
  int bits_ = 0;
};

}  // namespace lockstep::points
