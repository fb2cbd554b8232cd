// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/coordinate_map.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/detail/parallel_for.h"
#include "lockstep/base/error.h"
#include "lockstep/points/detail/sorted_keys.h"
#include "lockstep/points/sorted_coordinates.h"
#include "sparse/coordinates/cuda/coordinates.h"

namespace lockstep::sparse {
namespace {

at::Tensor int32_rows(int64_t rows, int64_t columns) {
  return at::empty({rows, columns}, at::kInt);
}

void check_coordinates(const char* operation, const at::Tensor& coordinates) {
  require(coordinates.defined() && coordinates.dim() == 2, operation, "coordinates have ",
          coordinates.defined() ? coordinates.dim() : 0, " dimensions, expected 2: [N, 1 + D]");
  require(coordinates.scalar_type() == at::kInt, operation, "coordinates have dtype ",
          c10::toString(coordinates.scalar_type()), ", expected Int (int32)");
  require(coordinates.is_cpu() || coordinates.is_cuda(), operation, "coordinates are on ", coordinates.device().str(),
          ", expected cpu or cuda");
  require(coordinates.size(1) >= 2 && coordinates.size(1) <= 9, operation, "coordinates have ", coordinates.size(1),
          " columns, expected the batch index and 1 to 8 axes");
  require(coordinates.size(0) < std::numeric_limits<int32_t>::max(), operation, "there are ", coordinates.size(0),
          " coordinates, expected fewer than 2^31 - 1");
}

void require_int32(const char* operation, const points::Box& box) {
  for (size_t column = 0; column < box.low.size(); ++column)
    require(box.low[column] >= std::numeric_limits<int32_t>::min() &&
                box.high[column] <= std::numeric_limits<int32_t>::max(),
            operation, "coordinates from ", box.low[column], " to ", box.high[column], " on axis ",
            static_cast<int64_t>(column) - 1, " leave the range of int32");
}

/// Keeps the layout of a parent map where it serves, so that kernel maps between the two need no repacking.
points::KeyLayout layout_for(const char* operation, const points::Box& box, const points::KeyLayout* parent) {
  return parent && parent->covers(box) ? *parent : points::KeyLayout(operation, box);
}

template <class Key>
void merge_shifted(const points::SortedKeys& keys, std::span<const int64_t> offsets, int64_t dimension,
                   points::SortedKeys& into) {
  const std::vector<Key>& source = keys.get<Key>();
  std::vector<Key> sum, moved(source.size() - 1), next;
  for (size_t at = 0; at < offsets.size(); at += dimension) {
    const Key shift = keys.layout.shift<Key>(offsets.subspan(at, dimension));
    for (size_t i = 0; i < moved.size(); ++i) moved[i] = source[i] + shift;
    next.clear();
    std::set_union(sum.begin(), sum.end(), moved.begin(), moved.end(), std::back_inserter(next));
    sum.swap(next);
  }
  sum.push_back(~Key{0});
  into.get<Key>() = std::move(sum);
}

template <class Key>
void merge_keys(const points::SortedKeys& more, points::SortedKeys& into) {
  const std::vector<Key>& a = into.get<Key>();
  const std::vector<Key>& b = more.get<Key>();
  std::vector<Key> sum;
  sum.reserve(std::max(a.size(), b.size()));
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(sum));
  into.get<Key>() = std::move(sum);
}

template <class Key>
at::Tensor unpack_all(const points::SortedKeys& keys) {
  const std::vector<Key>& source = keys.get<Key>();
  const int64_t size = keys.size(), columns = keys.layout.columns();
  at::Tensor coordinates = int32_rows(size, columns);
  int32_t* out = coordinates.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < size; ++i) keys.layout.unpack(source[i], out + i * columns);
  return coordinates;
}

at::Tensor unpack_all(const points::SortedKeys& keys) {
  return keys.layout.wide() ? unpack_all<points::Key128>(keys) : unpack_all<uint64_t>(keys);
}

template <class Key>
void find_rows(const CoordinateMap& map, const int32_t* queries, int64_t count, int64_t* rows) {
  const std::vector<Key>& keys = map.keys().get<Key>();
  const int64_t columns = map.dimension() + 1;
  parallel_for(0, count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t* query = queries + i * columns;
      if (!map.keys().layout.holds(query)) continue;
      const Key key = map.keys().layout.pack<Key>(query);
      const auto found = std::lower_bound(keys.begin(), keys.end() - 1, key);
      if (*found == key) rows[i] = map.row_at(found - keys.begin());
    }
  });
}

}  // namespace

std::string to_string(std::span<const int64_t> values) {
  std::string text = "[";
  for (const int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

CoordinateMap::Inserted CoordinateMap::insert(const at::Tensor& coordinates) {
  const char* operation = "CoordinateMap::insert";
  check_coordinates(operation, coordinates);
  if (coordinates.is_cuda()) {
    cuda::MadeMap made = cuda::insert(operation, coordinates);
    CoordinateMapPtr map = from_device(coordinates.device(), made);
    return {std::move(map), std::move(made.unique), std::move(made.inverse)};
  }
  const int64_t rows = coordinates.size(0), columns = coordinates.size(1);
  at::Tensor given = coordinates.contiguous();
  const int32_t* source = given.const_data_ptr<int32_t>();
  auto box = std::make_shared<points::Box>(points::Box::around(source, rows, columns));
  require(box->empty() || box->low[0] >= 0, operation, "a batch index is ", box->low[0], ", expected 0 or more");

  auto map = std::shared_ptr<CoordinateMap>(new CoordinateMap);
  Inserted inserted;
  points::SortedRows sorted = sort_rows(points::KeyLayout(operation, *box), source, rows);
  const int64_t unique = sorted.keys.size();
  if (unique == rows) {
    map->coordinates_ = given.is_same(coordinates) ? given.clone() : given;
    map->order_ = std::move(sorted.rows);
  } else {
    // Number the rows that stay, in their own order; then walk the groups of equal ones.
    std::vector<int32_t> number(rows, 0);
    for (int64_t position = 0; position < rows; ++position) number[sorted.rows[position]] = sorted.is_first[position];
    inserted.unique = at::empty({unique}, at::kLong);
    inserted.inverse = at::empty({rows}, at::kLong);
    map->coordinates_ = int32_rows(unique, columns);
    int64_t* kept = inserted.unique.mutable_data_ptr<int64_t>();
    int64_t* inverse = inserted.inverse.mutable_data_ptr<int64_t>();
    int32_t* target = map->coordinates_.mutable_data_ptr<int32_t>();
    int32_t next = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (!number[row]) continue;
      kept[next] = row;
      std::copy_n(source + row * columns, columns, target + next * columns);
      number[row] = next++;
    }
    map->order_.reserve(unique);
    for (int64_t position = 0; position < rows; ++position) {
      if (sorted.is_first[position]) map->order_.push_back(number[sorted.rows[position]]);
      inverse[sorted.rows[position]] = map->order_.back();
    }
    if (std::is_sorted(map->order_.begin(), map->order_.end())) map->order_.clear();
  }
  map->keys_ = std::make_shared<points::SortedKeys>(std::move(sorted.keys));
  map->size_ = unique;
  map->box_ = std::move(box);
  inserted.map = std::move(map);
  return inserted;
}

CoordinateMapPtr CoordinateMap::of(const points::SortedCoordinates& coordinates) {
  return from_sorted(coordinates.coordinates(), coordinates.box(), coordinates.keys());
}

CoordinateMapPtr CoordinateMap::from_sorted(at::Tensor coordinates, std::shared_ptr<const points::Box> box,
                                            std::shared_ptr<const points::SortedKeys> keys) {
  auto map = std::shared_ptr<CoordinateMap>(new CoordinateMap);
  map->size_ = coordinates.size(0);
  map->coordinates_ = std::move(coordinates);
  map->box_ = std::move(box);
  map->keys_ = std::move(keys);
  return map;
}

CoordinateMapPtr CoordinateMap::from_device(at::Device device, cuda::MadeMap& made) {
  auto map = std::shared_ptr<CoordinateMap>(new CoordinateMap);
  map->size_ = made.coordinates.size(0);
  map->coordinates_ = std::move(made.coordinates);
  map->order_ = std::move(made.order);
  map->box_ = std::make_shared<points::Box>(std::move(made.box));
  map->keys_ = std::make_shared<points::SortedKeys>(std::move(made.keys));
  map->device_ = device;
  cuda::keep_copy(*map, made);
  return map;
}

CoordinateMapPtr CoordinateMap::strided(std::span<const int64_t> stride) const {
  const char* operation = "CoordinateMap::strided";
  const int64_t columns = dimension() + 1;
  require(static_cast<int64_t>(stride.size()) == columns - 1, operation, "stride is ", to_string(stride), ", expected ",
          columns - 1, " values");
  for (const int64_t value : stride)
    require(value > 0 && value <= std::numeric_limits<int32_t>::max(), operation, "stride is ", to_string(stride),
            ", expected positive values within int32");
  points::Box box = *box_;
  if (!box.empty())
    for (int64_t column = 1; column < columns; ++column) {
      box.low[column] = points::floor_to(box.low[column], stride[column - 1]);
      box.high[column] = points::floor_to(box.high[column], stride[column - 1]);
    }
  if (size_ > 0) require_int32(operation, box);
  const points::KeyLayout layout = layout_for(operation, box, &keys_->layout);
  if (device_ && size_ > 0) {
    cuda::MadeMap made = cuda::strided(*this, stride, box, layout, *device_);
    return from_device(*device_, made);
  }

  auto keys = std::make_shared<points::SortedKeys>(round_down(*keys_, stride, layout));
  at::Tensor coordinates = unpack_all(*keys);
  return from_sorted(std::move(coordinates), std::make_shared<points::Box>(std::move(box)), std::move(keys));
}

CoordinateMapPtr CoordinateMap::expanded(std::span<const int64_t> offsets, std::span<const int64_t> stride) const {
  const char* operation = "CoordinateMap::expanded";
  const int64_t columns = dimension() + 1, axes = dimension();
  for (const int64_t value : stride)
    require(value > 0, operation, "tensor stride is ", to_string(stride), ", expected positive values");
  for (const int64_t value : offsets)
    require(value <= int64_t{1} << 33 && value >= -(int64_t{1} << 33), operation, "an offset is ", value,
            ", which leaves int32");
  points::Box box = *box_;
  if (!box.empty()) {
    for (int64_t axis = 0; axis < axes; ++axis) {
      int64_t low = 0, high = 0;
      for (size_t at = axis; at < offsets.size(); at += axes) {
        low = std::min(low, offsets[at]);
        high = std::max(high, offsets[at]);
      }
      box.low[axis + 1] += low;
      box.high[axis + 1] += high;
    }
    require_int32(operation, box);
  }
  const points::KeyLayout layout = layout_for(operation, box, &keys_->layout);
  const points::SortedKeys source = repack(*keys_, layout);
  auto keys = std::make_shared<points::SortedKeys>();
  keys->layout = layout;
  if (layout.wide())
    merge_shifted<points::Key128>(source, offsets, axes, *keys);
  else
    merge_shifted<uint64_t>(source, offsets, axes, *keys);
  at::Tensor coordinates = unpack_all(*keys);

  const auto on_grid = [&](const int32_t* coordinate) {
    for (int64_t axis = 0; axis < axes; ++axis)
      if (coordinate[axis + 1] % stride[axis] != 0) return false;
    return true;
  };
  int32_t* data = coordinates.mutable_data_ptr<int32_t>();
  int64_t kept = 0;
  for (int64_t row = 0; row < coordinates.size(0); ++row) {
    if (!on_grid(data + row * columns)) continue;
    if (kept != row) std::copy_n(data + row * columns, columns, data + kept * columns);
    ++kept;
  }
  if (kept < coordinates.size(0)) {
    coordinates = coordinates.narrow(0, 0, kept).clone();
    *keys = pack_ascending(layout, coordinates.const_data_ptr<int32_t>(), kept).value();
  }
  // Not every offset leads onto the grid, so the box may be smaller than what could have been reached.
  box = points::Box::around(coordinates.const_data_ptr<int32_t>(), kept, columns);
  return from_sorted(std::move(coordinates), std::make_shared<points::Box>(std::move(box)), std::move(keys));
}

CoordinateMapPtr CoordinateMap::origins() const {
  const int64_t columns = dimension() + 1;
  const int32_t* source = coordinates_.const_data_ptr<int32_t>();
  std::vector<int32_t> batches;
  for (int64_t position = 0; position < size_; ++position) {
    const int32_t batch = source[row_at(position) * columns];
    if (batches.empty() || batches.back() != batch) batches.push_back(batch);
  }
  at::Tensor coordinates = at::zeros({static_cast<int64_t>(batches.size()), columns}, at::kInt);
  int32_t* target = coordinates.mutable_data_ptr<int32_t>();
  for (size_t i = 0; i < batches.size(); ++i) target[i * columns] = batches[i];
  return insert(coordinates).map;
}

CoordinateMapPtr CoordinateMap::pruned(const at::Tensor& keep) const {
  const char* operation = "CoordinateMap::pruned";
  require(keep.dim() == 1 && keep.size(0) == size_ && keep.scalar_type() == at::kBool, operation, "mask is ",
          c10::toString(keep.scalar_type()), " ", text(keep.sizes()), ", expected Bool [", size_, "]");
  return insert(coordinates_.index({keep.cpu()})).map;
}

CoordinateMapPtr CoordinateMap::united(std::span<const CoordinateMapPtr> maps) {
  const char* operation = "CoordinateMap::united";
  require(!maps.empty(), operation, "there are no maps, expected one at least");
  points::Box box = maps[0]->box();
  for (const CoordinateMapPtr& map : maps) {
    require(map->dimension() == maps[0]->dimension(), operation, "a map has ", map->dimension(), " axes, expected ",
            maps[0]->dimension(), " as the first one has");
    box.include(map->box());
  }
  const points::KeyLayout layout = layout_for(operation, box, &maps[0]->keys().layout);
  auto keys = std::make_shared<points::SortedKeys>(repack(maps[0]->keys(), layout));
  for (const CoordinateMapPtr& map : maps.subspan(1)) {
    const points::SortedKeys more = repack(map->keys(), layout);
    layout.wide() ? merge_keys<points::Key128>(more, *keys) : merge_keys<uint64_t>(more, *keys);
  }
  at::Tensor coordinates = unpack_all(*keys);
  return from_sorted(std::move(coordinates), std::make_shared<points::Box>(std::move(box)), std::move(keys));
}

at::Tensor CoordinateMap::find(const at::Tensor& coordinates) const {
  const char* operation = "CoordinateMap::find";
  check_coordinates(operation, coordinates);
  require(coordinates.size(1) == dimension() + 1, operation, "coordinates have ", coordinates.size(1),
          " columns, expected ", dimension() + 1);
  at::Tensor rows = at::full({coordinates.size(0)}, -1, at::kLong);
  if (size_ == 0) return rows;
  const at::Tensor given = coordinates.cpu().contiguous();
  const int32_t* queries = given.const_data_ptr<int32_t>();
  if (keys_->layout.wide())
    find_rows<points::Key128>(*this, queries, given.size(0), rows.mutable_data_ptr<int64_t>());
  else
    find_rows<uint64_t>(*this, queries, given.size(0), rows.mutable_data_ptr<int64_t>());
  return rows;
}

int64_t CoordinateMap::bytes() const {
  return static_cast<int64_t>(coordinates_.nbytes() + order_.size() * sizeof(int32_t) +
                              keys_->narrow.size() * sizeof(uint64_t) + keys_->wide.size() * sizeof(points::Key128));
}

}  // namespace lockstep::sparse
