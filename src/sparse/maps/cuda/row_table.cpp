// SPDX-License-Identifier: Apache-2.0
#include "sparse/maps/cuda/row_pieces.h"

#include <c10/cuda/CUDAGuard.h>

#include "sparse/maps/cuda/row_lengths.h"
#include "sparse/maps/cuda/tables.h"

namespace lockstep::sparse::cuda {
namespace {

struct RowLengths {
  at::Tensor values;
  OnStream stream;
};

std::vector<int32_t> columns_by_entry(const RowMap& map) {
  std::vector<int32_t> columns(map.entry_count());
  for (int64_t place = 0; place < map.entry_count(); ++place) columns[map.entry(place)] = map.columns()[place];
  return columns;
}

}  // namespace

std::shared_ptr<const RowsOnDevice> rows_on_device(const RowMap& map, at::Device device) {
  return map.device_copies().get<RowsOnDevice>(device.index(), [&] {
    const RowPieces cut(map.bounds());
    RowTable table;
    table.rows = map.out_size();
    table.pieces = cut.pieces();
    table.entry_count = map.entry_count();
    std::vector<at::Tensor> kept;
    const auto keep = [&]<class T>(std::span<const T> values, at::ScalarType type) {
      kept.push_back(upload(values.data(), static_cast<int64_t>(values.size()), type, device));
      return static_cast<const T*>(kept.back().const_data_ptr());
    };
    table.piece_bounds = keep(std::span<const int64_t>(cut.piece_bounds), at::kLong);
    if (!cut.row_pieces.empty()) table.row_pieces = keep(std::span<const int64_t>(cut.row_pieces), at::kLong);
    table.columns = table.entry_columns = keep(map.columns(), at::kInt);
    if (!map.entries().empty()) {
      table.entries = keep(map.entries(), at::kLong);
      table.entry_columns = keep(std::span<const int32_t>(columns_by_entry(map)), at::kInt);
    }
    return std::make_shared<RowsOnDevice>(RowsOnDevice{table, OnStream(std::move(kept))});
  });
}

at::Tensor row_lengths(const RowMap& map, at::Device device, at::ScalarType type) {
  const c10::cuda::CUDAGuard guard(device);
  const auto lengths = map.device_copies().get<RowLengths>(device.index(), [&] {
    const at::Tensor counts = map.row_lengths(at::kLong);
    const at::Tensor values = upload(counts.const_data_ptr<int64_t>(), map.out_size(), at::kLong, device);
    return std::make_shared<RowLengths>(RowLengths{values, OnStream({values})});
  });
  lengths->stream.use();
  return lengths->values.to(type);
}

}  // namespace lockstep::sparse::cuda
