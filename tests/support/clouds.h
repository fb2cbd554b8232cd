// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

/// Coordinates for tests, and the slow and obvious way to look things up in them.
namespace lockstep::sparse::test {

using Point = std::vector<int64_t>;  // batch index first

inline at::Tensor to_tensor(const std::vector<Point>& points, int64_t columns) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(points.size()), columns}, at::kInt);
  auto rows = tensor.accessor<int32_t, 2>();
  for (size_t i = 0; i < points.size(); ++i)
    for (int64_t c = 0; c < columns; ++c) rows[i][c] = static_cast<int32_t>(points[i][c]);
  return tensor;
}

inline std::vector<Point> to_points(const at::Tensor& coordinates) {
  std::vector<Point> points(coordinates.size(0));
  auto rows = coordinates.accessor<int32_t, 2>();
  for (size_t i = 0; i < points.size(); ++i)
    for (int64_t c = 0; c < coordinates.size(1); ++c) points[i].push_back(rows[i][c]);
  return points;
}

/// `count` random coordinates, duplicates included, of `axes` axes within [low, high] on each.
inline at::Tensor random_cloud(int64_t count, int64_t axes, int64_t low, int64_t high, int64_t batches, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> value(low, high), batch(0, batches - 1);
  std::vector<Point> points(count);
  for (Point& point : points) {
    point.push_back(batch(random));
    for (int64_t axis = 0; axis < axes; ++axis) point.push_back(value(random));
  }
  return to_tensor(points, axes + 1);
}

inline std::map<Point, int64_t> rows_of(const at::Tensor& coordinates) {
  std::map<Point, int64_t> rows;
  const std::vector<Point> points = to_points(coordinates);
  for (size_t i = 0; i < points.size(); ++i) rows.emplace(points[i], static_cast<int64_t>(i));
  return rows;
}

}  // namespace lockstep::sparse::test
