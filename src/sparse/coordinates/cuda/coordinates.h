// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "lockstep/points/detail/sorted_keys.h"
#include "lockstep/sparse/coordinate_map.h"

namespace lockstep::sparse::cuda {

struct KeysOnDevice;

/// A coordinate map as a GPU made it: the rows, the order and the keys that the CPU's code gives for the same
/// coordinates, on the CPU, and their keys on the device besides.
struct MadeMap {
  at::Tensor coordinates;      ///< int32 [size, columns], on the CPU
  at::Tensor unique, inverse;  ///< int64, on the CPU; undefined where all coordinates were different
  std::vector<int32_t> order;  ///< empty where rows are sorted
  points::SortedKeys keys;
  points::Box box;
  std::shared_ptr<const KeysOnDevice> on_device;
};

/// CoordinateMap::insert for int32 [N, 1 + D] on a GPU. It waits twice: for the box, which decides how keys are packed,
/// and for the number of different coordinates.
MadeMap insert(const char* operation, const at::Tensor& coordinates);

/// CoordinateMap::strided, in a layout that covers `box`, the rounded one. It waits once, for the number of results.
MadeMap strided(const CoordinateMap& map, std::span<const int64_t> stride, const points::Box& box,
                const points::KeyLayout& layout, at::Device device);

/// Keeps the copy that a map was made with.
void keep_copy(const CoordinateMap& map, const MadeMap& made);

}  // namespace lockstep::sparse::cuda
