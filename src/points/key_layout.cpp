// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/key_layout.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::points {
namespace {

/// Strided maps round coordinates down. Starting fields at a multiple of this keeps the usual ones in their parent's
/// layout, and its keys need no repacking.
constexpr int64_t kAlignment = 64;

int64_t align_down(int64_t value) {
  return value & ~(kAlignment - 1);
}

}  // namespace

Box Box::around(const int32_t* coordinates, int64_t rows, int64_t columns) {
  std::vector<int32_t> low(columns, std::numeric_limits<int32_t>::max());
  std::vector<int32_t> high(columns, std::numeric_limits<int32_t>::min());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int32_t value = *coordinates++;
      low[column] = std::min(low[column], value);
      high[column] = std::max(high[column], value);
    }
  return {{low.begin(), low.end()}, {high.begin(), high.end()}};
}

void Box::include(const Box& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  for (size_t column = 0; column < low.size(); ++column) {
    low[column] = std::min(low[column], other.low[column]);
    high[column] = std::max(high[column], other.high[column]);
  }
}

KeyLayout::KeyLayout(const char* operation, const Box& box) : fields_(box.low.size()) {
  if (box.empty()) return;
  for (const bool align : {true, false}) {
    bits_ = 0;
    for (size_t column = fields_.size(); column-- > 0;) {
      Field& field = fields_[column];
      const int64_t low = box.low[column];
      const int guard = column == 0 ? 0 : 1;
      field.low = column == 0 ? low - 1 : align ? align_down(low) : low;
      field.extent = box.high[column] - field.low + 1;
      const int width = bits_for(field.extent) + guard;
      field.mask = (uint64_t{1} << width) - 1;
      field.shift = bits_;
      bits_ += width;
    }
    if (bits_ <= 64) return;
  }
  require(bits_ <= 128, operation, "the coordinates' box needs a key of ", bits_,
          " bits, expected at most 128: some coordinates lie too far apart on ", fields_.size() - 1, " axes");
}

bool KeyLayout::covers(const Box& box) const {
  if (box.empty()) return true;
  if (bits_ == 0) return false;
  for (size_t column = 0; column < fields_.size(); ++column) {
    const Field& field = fields_[column];
    const int64_t first = field.low + (column == 0 ? 1 : 0);
    if (box.low[column] < first || box.high[column] >= field.low + field.extent) return false;
  }
  return true;
}

bool KeyLayout::reaches(std::span<const int64_t> offset) const {
  for (size_t axis = 0; axis < offset.size(); ++axis)
    if (std::abs(offset[axis]) >= fields_[axis + 1].extent) return false;
  return true;
}

}  // namespace lockstep::points
