// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/sparse/coordinate_map.h"
#include "lockstep/sparse/detail/row_map.h"
#include "lockstep/sparse/kernel_map.h"
#include "sparse/cuda/on_stream.h"
#include "sparse/maps/cuda/kernel_table.h"
#include "sparse/ops/cuda/row_parts.h"

// What a device keeps of maps. Each is made when first asked for, on the current stream, and may be used on any.

namespace lockstep::sparse::cuda {

/// Sorted keys as int64 [n], or [2 n] where they are wide, and the row at each position (undefined: the position).
struct KeysOnDevice {
  at::Tensor keys, order;
  OnStream stream;

  const int32_t* order_data() const { return order.defined() ? order.const_data_ptr<int32_t>() : nullptr; }
};
std::shared_ptr<const KeysOnDevice> keys_on_device(const CoordinateMap& map, at::Device device);

struct TableOnDevice {
  KernelTable table;
  std::shared_ptr<const OnStream> stream;
};
/// Searched for on the device, without a wait: its size is known beforehand. 4 bytes for each offset and output. Both
/// directions of a map onto itself share one where offsets are symmetric.
std::shared_ptr<const TableOnDevice> table_on_device(const KernelMap& map, at::Device device);

struct RowsOnDevice {
  RowTable table;
  OnStream stream;
};
std::shared_ptr<const RowsOnDevice> rows_on_device(const RowMap& map, at::Device device);

}  // namespace lockstep::sparse::cuda
