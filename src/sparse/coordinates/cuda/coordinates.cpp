// SPDX-License-Identifier: Apache-2.0
#include "sparse/coordinates/cuda/coordinates.h"

#include <ATen/TensorOperators.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "sparse/maps/cuda/maps.h"
#include "sparse/maps/cuda/tables.h"

namespace lockstep::sparse::cuda {
namespace {

at::Tensor scratch(size_t bytes, const at::Tensor& like) {
  return at::empty({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte));
}

template <class Key>
Key* keys_in(const at::Tensor& keys) {
  return reinterpret_cast<Key*>(keys.mutable_data_ptr<int64_t>());
}

template <class Key>
at::Tensor empty_keys(int64_t count, const at::Tensor& like) {
  return at::empty({count * static_cast<int64_t>(sizeof(Key) / 8)}, like.options().dtype(at::kLong));
}

/// The rows in ascending order of their keys, equal ones in order of their rows: int32 [count]. Wide keys are sorted
/// by their low words, then by their high ones.
template <class Key>
at::Tensor sort_rows(const at::Tensor& keys, int64_t count, int bits, cudaStream_t stream) {
  const at::TensorOptions ints = keys.options().dtype(at::kInt);
  const at::Tensor words = at::empty({2, count}, keys.options());
  at::Tensor rows = at::empty({count}, ints), sorted = at::empty({count}, ints);
  auto* word = keys_in<uint64_t>(words);
  const at::Tensor memory = scratch(sort_bytes(static_cast<int>(count)), keys);
  launch_map(count, stream, CountUp{rows.mutable_data_ptr<int32_t>()});
  for (int shift = 0; shift < std::max(bits, 1); shift += 64) {
    const int32_t* by = shift == 0 ? nullptr : rows.const_data_ptr<int32_t>();
    launch_map(count, stream, TakeWord<Key>{keys_in<Key>(keys), by, shift, word});
    const SortJob job{word,
                      rows.const_data_ptr<int32_t>(),
                      word + count,
                      sorted.mutable_data_ptr<int32_t>(),
                      static_cast<int>(count),
                      std::clamp(bits - shift, 1, 64)};
    launch_sort(job, memory.mutable_data_ptr(), memory.nbytes(), stream);
    std::swap(rows, sorted);
  }
  return rows;
}

at::Tensor running_sum(const at::Tensor& values, cudaStream_t stream) {
  at::Tensor sums = at::empty_like(values);
  const int count = static_cast<int>(values.numel());
  const at::Tensor memory = scratch(sum_bytes(count), values);
  launch_running_sum(values.const_data_ptr<int32_t>(), sums.mutable_data_ptr<int32_t>(), count,
                     memory.mutable_data_ptr(), memory.nbytes(), stream);
  return sums;
}

/// Equal keys as one, all on the device.
struct Groups {
  at::Tensor keys;     // sorted
  at::Tensor numbers;  // int32: the number among rows that stay of each group's first row
  at::Tensor unique;   // int64: the rows that stay
  at::Tensor inverse;  // int64: for each row the number of its group's first row
};

template <class Key>
Groups group_keys(const at::Tensor& keys, int64_t count, int bits, cudaStream_t stream) {
  const at::Tensor rows = sort_rows<Key>(keys, count, bits, stream);
  const at::Tensor first = at::empty_like(rows), kept = at::empty_like(rows);
  const int32_t* row = rows.const_data_ptr<int32_t>();
  launch_map(
      count, stream,
      MarkFirst<Key>{keys_in<Key>(keys), row, first.mutable_data_ptr<int32_t>(), kept.mutable_data_ptr<int32_t>()});
  const at::Tensor group = running_sum(first, stream), number = running_sum(kept, stream);
  const int64_t unique = group[count - 1].item<int32_t>();  // the wait that sizes the outputs
  Groups groups{empty_keys<Key>(unique, keys), at::empty({unique}, rows.options()), at::empty({unique}, keys.options()),
                at::empty({count}, keys.options())};
  launch_map(
      count, stream,
      CollectGroups<Key>{keys_in<Key>(keys), row, first.const_data_ptr<int32_t>(), group.const_data_ptr<int32_t>(),
                         number.const_data_ptr<int32_t>(), keys_in<Key>(groups.keys),
                         groups.numbers.mutable_data_ptr<int32_t>(), groups.unique.mutable_data_ptr<int64_t>()});
  launch_map(count, stream,
             NumberRows{row, group.const_data_ptr<int32_t>(), groups.numbers.const_data_ptr<int32_t>(),
                        groups.inverse.mutable_data_ptr<int64_t>()});
  return groups;
}

template <class Key>
points::SortedKeys to_cpu(const at::Tensor& keys, const points::KeyLayout& layout) {
  points::SortedKeys sorted;
  sorted.layout = layout;
  const at::Tensor copy = keys.cpu();
  const auto* data = reinterpret_cast<const Key*>(copy.const_data_ptr<int64_t>());
  sorted.get<Key>().assign(data, data + copy.numel() * 8 / static_cast<int64_t>(sizeof(Key)));
  sorted.get<Key>().push_back(~Key{0});
  return sorted;
}

void keep_order(MadeMap& made, at::Tensor& numbers) {
  const at::Tensor order = numbers.cpu();
  const auto* data = order.const_data_ptr<int32_t>();
  if (std::is_sorted(data, data + order.numel()))
    numbers = at::Tensor();
  else
    made.order.assign(data, data + order.numel());
}

template <class Key>
void insert_rows(MadeMap& made, const at::Tensor& coordinates, const points::KeyLayout& layout) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  const int64_t count = coordinates.size(0);
  const at::Tensor keys = empty_keys<Key>(count, coordinates);
  launch_map(count, stream,
             PackRows<Key>{PlainLayout(layout), coordinates.const_data_ptr<int32_t>(), keys_in<Key>(keys)});
  Groups groups = group_keys<Key>(keys, count, layout.bits(), stream);
  const bool all_differ = groups.unique.size(0) == count;
  made.coordinates = (all_differ ? coordinates : coordinates.index_select(0, groups.unique)).cpu();
  if (!all_differ) {
    made.unique = groups.unique.cpu();
    made.inverse = groups.inverse.cpu();
  }
  keep_order(made, groups.numbers);
  made.keys = to_cpu<Key>(groups.keys, layout);
  made.on_device = std::make_shared<KeysOnDevice>(
      KeysOnDevice{groups.keys, groups.numbers, OnStream({groups.keys, groups.numbers})});
}

template <class From, class To>
void round_rows(MadeMap& made, const CoordinateMap& map, std::span<const int64_t> stride,
                const points::KeyLayout& layout, at::Device device) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  const auto source = keys_on_device(map, device);
  source->stream.use();
  const at::Tensor keys = empty_keys<To>(map.size(), source->keys);
  RoundKeys<From, To> round{
      PlainLayout(map.keys().layout), PlainLayout(layout), {}, keys_in<From>(source->keys), keys_in<To>(keys)};
  round.stride[0] = 1;
  for (size_t axis = 0; axis < stride.size(); ++axis) round.stride[axis + 1] = static_cast<int32_t>(stride[axis]);
  launch_map(map.size(), stream, round);
  const Groups groups = group_keys<To>(keys, map.size(), layout.bits(), stream);
  const at::Tensor coordinates = at::empty({groups.unique.size(0), layout.columns()}, keys.options().dtype(at::kInt));
  launch_map(coordinates.numel(), stream,
             UnpackKeys<To>{PlainLayout(layout), keys_in<To>(groups.keys), coordinates.mutable_data_ptr<int32_t>()});
  made.coordinates = coordinates.cpu();
  made.keys = to_cpu<To>(groups.keys, layout);
  made.on_device = std::make_shared<KeysOnDevice>(KeysOnDevice{groups.keys, at::Tensor(), OnStream({groups.keys})});
}

points::Box box_of(const at::Tensor& coordinates) {
  if (coordinates.size(0) == 0) return points::Box::around(nullptr, 0, coordinates.size(1));
  const at::Tensor both = at::stack({at::amin(coordinates, 0), at::amax(coordinates, 0)}).to(at::kCPU, at::kLong);
  const int64_t *low = both.const_data_ptr<int64_t>(), *high = low + coordinates.size(1);
  return {{low, high}, {high, high + coordinates.size(1)}};
}

}  // namespace

MadeMap insert(const char* operation, const at::Tensor& coordinates) {
  const c10::cuda::CUDAGuard guard(coordinates.device());
  const at::Tensor given = coordinates.contiguous();
  MadeMap made;
  made.box = box_of(given);
  require(made.box.empty() || made.box.low[0] >= 0, operation, "a batch index is ",
          made.box.empty() ? 0 : made.box.low[0], ", expected 0 or more");
  const points::KeyLayout layout(operation, made.box);
  if (made.box.empty()) {
    made.coordinates = given.cpu();
    made.keys = points::sort_rows(layout, nullptr, 0).keys;
  } else if (layout.wide()) {
    insert_rows<points::Key128>(made, given, layout);
  } else {
    insert_rows<uint64_t>(made, given, layout);
  }
  return made;
}

MadeMap strided(const CoordinateMap& map, std::span<const int64_t> stride, const points::Box& box,
                const points::KeyLayout& layout, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  MadeMap made;
  made.box = box;
  if (map.keys().layout.wide())
    layout.wide() ? round_rows<points::Key128, points::Key128>(made, map, stride, layout, device)
                  : round_rows<points::Key128, uint64_t>(made, map, stride, layout, device);
  else
    layout.wide() ? round_rows<uint64_t, points::Key128>(made, map, stride, layout, device)
                  : round_rows<uint64_t, uint64_t>(made, map, stride, layout, device);
  return made;
}

void keep_copy(const CoordinateMap& map, const MadeMap& made) {
  if (made.on_device) map.device_copies().put<KeysOnDevice>(made.on_device->keys.device().index(), made.on_device);
}

}  // namespace lockstep::sparse::cuda
