// SPDX-License-Identifier: Apache-2.0
#include "sparse/maps/cuda/kernel_table.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "sparse/maps/cuda/maps.h"
#include "sparse/maps/cuda/tables.h"
#include "sparse/maps/kernel_map_search.h"

namespace lockstep::sparse::cuda {
namespace {

std::shared_ptr<const KeysOnDevice> upload_keys(const points::SortedKeys& sorted, const CoordinateMap& map,
                                                at::Device device) {
  const int64_t size = map.size();
  const at::Tensor keys = sorted.layout.wide() ? upload(sorted.wide.data(), size, at::kLong, device)
                                               : upload(sorted.narrow.data(), size, at::kLong, device);
  const at::Tensor places = map.order().empty() ? at::Tensor() : upload(map.order().data(), size, at::kInt, device);
  return std::make_shared<KeysOnDevice>(KeysOnDevice{keys, places, OnStream({keys, places})});
}

/// Keys of a map in a layout that may be another one than its own.
std::shared_ptr<const KeysOnDevice> keys_in_layout(const CoordinateMap& map, const points::KeyLayout& layout,
                                                   at::Device device) {
  if (map.keys().layout == layout) return keys_on_device(map, device);
  return upload_keys(repack(map.keys(), layout), map, device);
}

struct Found {
  at::Tensor rows;                                        // int32 [offsets * out_size]
  std::vector<std::shared_ptr<const KeysOnDevice>> keys;  // for the order of outputs
};

template <class Key>
Found find_neighbours(const KernelMap& map, const points::KeyLayout& layout, at::Device device, cudaStream_t stream) {
  const auto in = keys_in_layout(*map.in_map(), layout, device);
  const auto out = map.in_map() == map.out_map() ? in : keys_in_layout(*map.out_map(), layout, device);
  in->stream.use();
  out->stream.use();
  const std::vector<int64_t> offsets = map.offsets();
  const size_t axes = offsets.size() / static_cast<size_t>(map.volume());
  std::vector<Key> shifts(map.volume(), 0);
  std::vector<uint8_t> reaches(map.volume());
  for (int64_t k = 0; k < map.volume(); ++k) {
    const auto offset = std::span(offsets).subspan(k * axes, axes);
    reaches[k] = layout.reaches(offset);
    if (reaches[k]) shifts[k] = layout.shift<Key>(offset);
  }
  const at::Tensor shift = upload(shifts.data(), map.volume(), at::kLong, device);
  const at::Tensor reach = upload(reaches.data(), map.volume(), at::kByte, device);
  at::Tensor found = at::empty({map.volume() * map.out_size()}, shift.options().dtype(at::kInt));
  const auto keys_of = [](const KeysOnDevice& side) {
    return reinterpret_cast<const Key*>(side.keys.const_data_ptr<int64_t>());
  };
  const NeighbourSearch<Key> search{keys_of(*in),
                                    in->order_data(),
                                    map.in_size(),
                                    keys_of(*out),
                                    out->order_data(),
                                    map.out_size(),
                                    reinterpret_cast<const Key*>(shift.const_data_ptr<int64_t>()),
                                    reach.const_data_ptr<uint8_t>(),
                                    map.volume()};
  launch_map(found.numel(), stream, FindNeighbours<Key>{search, found.mutable_data_ptr<int32_t>()});
  return {found, {in, out}};
}

std::shared_ptr<const OnStream> on_stream(std::vector<at::Tensor> tensors) {
  return std::make_shared<const OnStream>(std::move(tensors));
}

/// Sorts the outputs by the offsets that they have, and puts the table in that order.
TableOnDevice arrange(const KernelMap& map, const Found& found, cudaStream_t stream) {
  const int64_t size = map.out_size(), offsets = map.volume();
  KernelTable table;
  table.size = size;
  table.offsets = offsets;
  const auto ints = found.rows.options(), longs = ints.dtype(at::kLong);
  const at::Tensor masks = at::empty({2, size}, longs), positions = at::empty({2, size}, ints);
  auto* mask = reinterpret_cast<uint64_t*>(masks.mutable_data_ptr<int64_t>());
  int32_t* position = positions.mutable_data_ptr<int32_t>();
  const int32_t* rows = found.rows.const_data_ptr<int32_t>();
  launch_map(size, stream, MaskPositions{rows, offsets, size, mask, position});
  const SortJob sort{mask,
                     position,
                     mask + size,
                     position + size,
                     static_cast<int>(size),
                     static_cast<int>(std::min<int64_t>(64, offsets))};
  const at::Tensor scratch = at::empty({static_cast<int64_t>(sort_bytes(sort.count))}, ints.dtype(at::kByte));
  launch_sort(sort, scratch.mutable_data_ptr(), scratch.nbytes(), stream);
  const at::Tensor in_rows = at::empty_like(found.rows), out_rows = at::empty({size}, ints);
  const at::Tensor tile_masks = at::empty({table.tiles()}, longs);
  auto* tile_mask = reinterpret_cast<uint64_t*>(tile_masks.mutable_data_ptr<int64_t>());
  launch_map(in_rows.numel(), stream,
             ArrangeTable{rows, sort.sorted_values, found.keys[1]->order_data(), size,
                          in_rows.mutable_data_ptr<int32_t>(), out_rows.mutable_data_ptr<int32_t>()});
  launch_map(table.tiles(), stream, MaskTiles{sort.sorted_words, size, tile_mask});
  table.in_rows = in_rows.const_data_ptr<int32_t>();
  table.out_rows = out_rows.const_data_ptr<int32_t>();
  table.tile_masks = tile_mask;
  return {table, on_stream({in_rows, out_rows, tile_masks})};
}

/// Whether the table of the other direction is this one's, mirrored. Of two such directions one has the greater
/// offsets.
bool takes_other_direction(const KernelMap& map) {
  if (map.in_map() != map.out_map()) return false;
  const std::vector<int64_t> offsets = map.offsets(), others = map.transposed()->offsets();
  const auto axes = static_cast<int64_t>(offsets.size()) / map.volume();
  for (int64_t k = 0; k < map.volume(); ++k)
    if (!std::equal(offsets.begin() + k * axes, offsets.begin() + (k + 1) * axes, others.end() - (k + 1) * axes))
      return false;
  return offsets > others;
}

}  // namespace

std::shared_ptr<const KeysOnDevice> keys_on_device(const CoordinateMap& map, at::Device device) {
  return map.device_copies().get<KeysOnDevice>(device.index(), [&] { return upload_keys(map.keys(), map, device); });
}

std::shared_ptr<const TableOnDevice> table_on_device(const KernelMap& map, at::Device device) {
  return map.device_copies().get<TableOnDevice>(device.index(), [&] {
    if (map.in_map() == nullptr || map.out_size() == 0) {
      KernelTable table;
      table.size = map.out_size();
      table.offsets = map.volume();
      return std::make_shared<TableOnDevice>(TableOnDevice{table, on_stream({})});
    }
    if (takes_other_direction(map)) {
      TableOnDevice other = *table_on_device(*map.transposed(), device);
      other.table.mirrored = true;
      return std::make_shared<TableOnDevice>(std::move(other));
    }
    const auto stream = at::cuda::getCurrentCUDAStream(device.index());
    const points::KeyLayout layout = common_layout(*map.in_map(), *map.out_map());
    const Found found = layout.wide() ? find_neighbours<points::Key128>(map, layout, device, stream)
                                      : find_neighbours<uint64_t>(map, layout, device, stream);
    return std::make_shared<TableOnDevice>(arrange(map, found, stream));
  });
}

}  // namespace lockstep::sparse::cuda
