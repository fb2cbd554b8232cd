// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/cells.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/points/detail/sorted_keys.h"

namespace lockstep::points {
namespace {

constexpr int64_t kWidest = int64_t{1} << 21;
constexpr int64_t kColumns = 4;  // batch index 0, then the axes, as keys want them

/// The cell of each point.
std::vector<int32_t> round_down(const char* operation, std::span<const std::array<float, 3>> points, double side) {
  std::vector<int32_t> rows(points.size() * kColumns);
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t axis = 0; axis < 3; ++axis) {
      const double at = static_cast<double>(points[i][axis]) / side;
      require(std::abs(at) < 1e9, operation, "point ", i, " has the coordinate ", points[i][axis],
              ", expected one within 1e9 voxels of 0");
      const auto toward_zero = static_cast<int32_t>(at);
      rows[i * kColumns + axis + 1] = toward_zero - (at < toward_zero ? 1 : 0);
    }
  return rows;
}

}  // namespace

Cells cells_of(const char* operation, std::span<const std::array<float, 3>> points, double side) {
  const auto count = static_cast<int64_t>(points.size());
  require(count < std::numeric_limits<int32_t>::max(), operation, "there are ", count,
          " points, expected fewer than 2^31 - 1");
  const std::vector<int32_t> rows = round_down(operation, points, side);
  const Box box = Box::around(rows.data(), count, kColumns);
  for (int64_t axis = 1; axis < kColumns && !box.empty(); ++axis)
    require(box.high[axis] - box.low[axis] < kWidest, operation, "the cloud is ", box.high[axis] - box.low[axis] + 1,
            " voxels wide, expected at most ", kWidest, ": larger voxels");
  SortedRows sorted = sort_rows(KeyLayout(operation, box), rows.data(), count);
  Cells cells;
  cells.points = std::move(sorted.rows);
  if (sorted.is_first.empty()) {  // they lie in order, each in a cell of its own
    cells.points.resize(count);
    std::iota(cells.points.begin(), cells.points.end(), 0);
    sorted.is_first.assign(count, 1);
  }
  cells.places.reserve(sorted.keys.size());
  cells.bounds.reserve(sorted.keys.size() + 1);
  for (int64_t position = 0; position < count; ++position) {
    if (!sorted.is_first[position]) continue;
    const int32_t* row = rows.data() + cells.points[position] * kColumns;
    cells.places.push_back({row[1], row[2], row[3]});
    cells.bounds.push_back(position);
  }
  cells.bounds.push_back(count);
  return cells;
}

}  // namespace lockstep::points
