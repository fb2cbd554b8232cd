// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::points {

/// Points on a grid, by the cell that each lies in. Cells ascend by coordinate, axis by axis; points of one cell stay
/// in their order.
struct Cells {
  std::vector<std::array<int32_t, 3>> places{};  ///< of the cells that hold points
  std::vector<int64_t> bounds{};                 ///< cell i holds points[bounds[i]] .. points[bounds[i + 1] - 1]
  std::vector<int32_t> points{};                 ///< numbers of points, cell after cell

  int64_t size() const { return static_cast<int64_t>(places.size()); }
  std::span<const int32_t> points_of(int64_t cell) const {
    return std::span(points).subspan(bounds[cell], bounds[cell + 1] - bounds[cell]);
  }
};

/// Divides points by a cell's side and rounds down. Throws Error, naming `operation`, where a point is not finite or
/// lies 1e9 cells or more from 0, and where the points are more than 2^21 cells wide, which is a side in the wrong
/// unit.
Cells cells_of(const char* operation, std::span<const std::array<float, 3>> points, double side);

}  // namespace lockstep::points
