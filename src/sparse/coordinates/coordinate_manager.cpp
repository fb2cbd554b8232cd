// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/coordinate_manager.h"

#include <ATen/ops/equal.h>

#include <algorithm>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"

namespace lockstep::sparse {
namespace {

Mutex global_mutex;
CoordinateManagerPtr global_manager LOCKSTEP_GUARDED_BY(global_mutex);

AxisValues times(AxisValues a, const AxisValues& b) {
  for (size_t i = 0; i < a.size(); ++i)
    require(!__builtin_mul_overflow(a[i], b[i], &a[i]) && a[i] < int64_t{1} << 31, "CoordinateManager",
            "a tensor stride times ", b[i], " leaves int32");
  return a;
}

bool all_ones(const AxisValues& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 1; });
}

void require_stride(int64_t dimension, const CoordinateMap& map, const AxisValues& tensor_stride) {
  const char* name = "CoordinateManager::insert";
  require(map.dimension() == dimension, name, "coordinates have ", map.dimension(), " axes, expected ", dimension);
  require(static_cast<int64_t>(tensor_stride.size()) == dimension, name, "tensor stride is ",
          sparse::to_string(tensor_stride), ", expected ", dimension, " values");
  for (const int64_t value : tensor_stride)
    require(value >= 0 && value < int64_t{1} << 31, name, "tensor stride is ", sparse::to_string(tensor_stride),
            ", expected values from 0 to 2^31 - 1");
}

void require_multiples(const CoordinateMap& map, const AxisValues& tensor_stride) {
  if (all_ones(tensor_stride)) return;
  const int32_t* row = map.coordinates().const_data_ptr<int32_t>();
  for (int64_t i = 0; i < map.size(); ++i, row += map.dimension() + 1)
    for (int64_t axis = 0; axis < map.dimension(); ++axis)
      require(tensor_stride[axis] == 0 ? row[axis + 1] == 0 : row[axis + 1] % tensor_stride[axis] == 0,
              "CoordinateManager::insert", "coordinate ", row[axis + 1], " of row ", i,
              " is no multiple of the tensor stride ", sparse::to_string(tensor_stride));
}

CoordinateMap::Inserted checked_map(int64_t dimension, const at::Tensor& coordinates, const AxisValues& tensor_stride) {
  CoordinateMap::Inserted inserted = CoordinateMap::insert(coordinates);
  require_stride(dimension, *inserted.map, tensor_stride);
  require_multiples(*inserted.map, tensor_stride);
  return inserted;
}

}  // namespace

std::string CoordinateMapKey::to_string() const {
  return text("stride ", sparse::to_string(tensor_stride), label.empty() ? "" : " label '" + label + "'",
              number == 0 ? "" : " number " + std::to_string(number));
}

std::string LayerGeometry::to_string() const {
  return region.to_string() + " stride " + sparse::to_string(stride) + (transposed ? " transposed" : "") +
         (generative ? " generative" : "") + (expand_coordinates ? " expanding" : "");
}

CoordinateManager::CoordinateManager(int64_t dimension) : dimension_(dimension) {
  require(dimension >= 1 && dimension <= 8, "CoordinateManager", "dimension is ", dimension, ", expected 1 to 8");
}

void CoordinateManager::set_batch_size(int64_t entries) {
  require(entries >= 0 && entries < int64_t{1} << 31, "CoordinateManager", "batch size is ", entries,
          ", expected 0 to 2^31 - 1");
  batch_size_ = entries;
}

CoordinateManager::Inserted CoordinateManager::insert(const at::Tensor& coordinates, AxisValues tensor_stride,
                                                      const std::string& label) {
  CoordinateMap::Inserted inserted = checked_map(dimension_, coordinates, tensor_stride);
  const Lock lock(mutex_);
  return {add(std::move(inserted.map), {std::move(tensor_stride), label}), std::move(inserted.unique),
          std::move(inserted.inverse)};
}

CoordinateManager::Inserted CoordinateManager::insert_apart(const at::Tensor& coordinates, AxisValues tensor_stride) {
  CoordinateMap::Inserted inserted = checked_map(dimension_, coordinates, tensor_stride);
  const Lock lock(mutex_);
  return {add(std::move(inserted.map), {std::move(tensor_stride), "", ++counted_}), std::move(inserted.unique),
          std::move(inserted.inverse)};
}

CoordinateMapKey CoordinateManager::insert(CoordinateMapPtr map, AxisValues tensor_stride, const std::string& label) {
  require_stride(dimension_, *map, tensor_stride);
  const Lock lock(mutex_);
  return add(std::move(map), {std::move(tensor_stride), label});
}

CoordinateMapKey CoordinateManager::share(const CoordinateManager& from, const CoordinateMapKey& key) {
  CoordinateMapPtr map = from.map(key);
  if (&from == this) return key;
  require_stride(dimension_, *map, key.tensor_stride);
  const Lock lock(mutex_);
  for (const auto& [there, same] : maps_)
    if (same == map && there.tensor_stride == key.tensor_stride) return there;
  // Its number counts the other manager's maps.
  return add(std::move(map), {key.tensor_stride, key.label, key.number == 0 ? 0 : ++counted_});
}

CoordinateMapKey CoordinateManager::add(CoordinateMapPtr map, CoordinateMapKey key) {
  if (maps_.count(key)) key.number = ++counted_;
  maps_.emplace(key, std::move(map));
  return key;
}

bool CoordinateManager::contains(const CoordinateMapKey& key) const {
  const Lock lock(mutex_);
  return maps_.count(key) != 0;
}

CoordinateMapPtr CoordinateManager::find(const CoordinateMapKey& key) const {
  const auto found = maps_.find(key);
  if (found != maps_.end()) return found->second;
  std::string known;
  for (const auto& [other, map] : maps_) known += (known.empty() ? "" : "; ") + other.to_string();
  fail("CoordinateManager", "there is no coordinate map '", key.to_string(),
       "', expected one of: ", known.empty() ? "none" : known);
}

CoordinateMapPtr CoordinateManager::map(const CoordinateMapKey& key) const {
  const Lock lock(mutex_);
  return find(key);
}

std::vector<CoordinateMapKey> CoordinateManager::keys() const {
  const Lock lock(mutex_);
  std::vector<CoordinateMapKey> keys;
  for (const auto& [key, map] : maps_) keys.push_back(key);
  return keys;
}

CoordinateMapKey CoordinateManager::stride_locked(const CoordinateMapKey& key, const AxisValues& stride) {
  require(static_cast<int64_t>(stride.size()) == dimension_, "CoordinateManager::stride", "stride is ",
          sparse::to_string(stride), ", expected ", dimension_, " values");
  if (all_ones(stride)) return key;
  const auto known = strided_.find({key, stride});
  if (known != strided_.end()) return known->second;
  const AxisValues out = times(key.tensor_stride, stride);
  CoordinateMapPtr coarse = find(key)->strided(out);
  // Stride 4 leads where stride 2 does twice: layers on either way then share keys and kernel maps.
  const auto there = maps_.find({out, key.label, key.number});
  const bool same = there != maps_.end() && at::equal(there->second->coordinates(), coarse->coordinates());
  const CoordinateMapKey made = same ? there->first : add(std::move(coarse), {out, key.label, key.number});
  strided_.emplace(std::pair{key, stride}, made);
  return made;
}

CoordinateMapKey CoordinateManager::stride(const CoordinateMapKey& key, const AxisValues& stride) {
  const Lock lock(mutex_);
  return stride_locked(key, stride);
}

CoordinateMapKey CoordinateManager::origin_locked(const CoordinateMapKey& key) {
  const auto known = origins_.find(key);
  if (known != origins_.end()) return known->second;
  // Maps with the same batch indices share their origin.
  const CoordinateMapPtr made = find(key)->origins();
  const AxisValues zeros(dimension_, 0);
  for (const auto& [other, map] : maps_)
    if (other.tensor_stride == zeros && at::equal(map->coordinates(), made->coordinates()))
      return origins_.emplace(key, other).first->second;
  return origins_.emplace(key, add(made, {zeros})).first->second;
}

CoordinateMapKey CoordinateManager::origin(const CoordinateMapKey& key) {
  const Lock lock(mutex_);
  return origin_locked(key);
}

CoordinateMapKey CoordinateManager::prune(const CoordinateMapKey& key, const at::Tensor& keep) {
  CoordinateMapPtr pruned = map(key)->pruned(keep);
  const Lock lock(mutex_);
  // A number that no map has, on any stride: a transposed layer takes a finer map of its input's number for its own.
  return add(std::move(pruned), {key.tensor_stride, key.label, ++counted_});
}

CoordinateMapKey CoordinateManager::unite(const std::vector<CoordinateMapKey>& keys) {
  require(!keys.empty(), "CoordinateManager::unite", "there are no keys, expected one at least");
  const Lock lock(mutex_);
  std::vector<CoordinateMapKey> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (sorted.size() == 1) return sorted[0];
  const auto known = unions_.find(sorted);
  if (known != unions_.end()) return known->second;
  std::vector<CoordinateMapPtr> maps;
  std::vector<std::pair<std::string, int64_t>> parts;
  for (const CoordinateMapKey& key : sorted) {
    require(key.tensor_stride == sorted[0].tensor_stride, "CoordinateManager::unite", "a tensor has stride ",
            sparse::to_string(key.tensor_stride), ", expected ", sparse::to_string(sorted[0].tensor_stride),
            " as the others have");
    maps.push_back(find(key));
    parts.emplace_back(key.label, key.number);
  }
  CoordinateMapPtr united = CoordinateMap::united(maps);
  int64_t& number = union_numbers_[parts];
  if (number == 0) number = ++counted_;
  return unions_.emplace(sorted, add(std::move(united), {sorted[0].tensor_stride, "", number})).first->second;
}

AxisValues CoordinateManager::out_stride(const CoordinateMapKey& in, const LayerGeometry& geometry) const {
  const char* name = "CoordinateManager::out_key";
  require(static_cast<int64_t>(geometry.stride.size()) == dimension_ && geometry.region.dimension() == dimension_, name,
          "the layer is ", geometry.to_string(), ", expected one of ", dimension_, " axes");
  for (const int64_t value : geometry.stride)
    require(value >= 1 && value < int64_t{1} << 31, name, "the layer's stride is ", sparse::to_string(geometry.stride),
            ", expected values from 1 to 2^31 - 1");
  if (!geometry.transposed) return times(in.tensor_stride, geometry.stride);
  AxisValues out = in.tensor_stride;
  for (int64_t axis = 0; axis < dimension_; ++axis) {
    require(out[axis] % geometry.stride[axis] == 0, name, "stride ", sparse::to_string(geometry.stride),
            " does not divide the tensor stride ", sparse::to_string(in.tensor_stride), " on axis ", axis);
    out[axis] /= geometry.stride[axis];
  }
  return out;
}

CoordinateMapKey CoordinateManager::out_key_locked(const CoordinateMapKey& in, const LayerGeometry& geometry) {
  const AxisValues out = out_stride(in, geometry);
  if (!geometry.transposed && !geometry.expand_coordinates) return stride_locked(in, geometry.stride);
  const auto known = expanded_.find({in, geometry});
  if (known != expanded_.end()) return known->second;
  const CoordinateMapKey finer{out, in.label, in.number};
  if (geometry.transposed && !geometry.generative) {
    // The map that this one was strided from, before any that merely has its label and number.
    for (const auto& [from, to] : strided_)
      if (to == in && from.first.tensor_stride == out) return from.first;
    for (const CoordinateMapKey& there : {finer, CoordinateMapKey{out}})  // that of a map pruned is the whole one's
      if (maps_.count(there)) return there;
  }
  // in = out + offset for a convolution, out = in + offset for a transposed one.
  std::vector<int64_t> offsets = geometry.region.offsets(geometry.transposed ? out : in.tensor_stride);
  if (!geometry.transposed)
    for (int64_t& value : offsets) value = -value;
  // A transposed layer's reach lies where its inputs do: on the finer grid, for inputs that are multiples of theirs.
  const AxisValues grid = geometry.transposed ? AxisValues(dimension_, 1) : out;
  const CoordinateMapKey made = add(find(in)->expanded(offsets, grid), finer);
  expanded_.emplace(std::pair{in, geometry}, made);
  return made;
}

CoordinateMapKey CoordinateManager::out_key(const CoordinateMapKey& in, const LayerGeometry& geometry) {
  const Lock lock(mutex_);
  return out_key_locked(in, geometry);
}

KernelMapPtr CoordinateManager::kernel_map(const CoordinateMapKey& in, const CoordinateMapKey& out,
                                           const KernelRegion& region, bool transposed) {
  if (transposed) return kernel_map(out, in, region)->transposed();
  const Lock lock(mutex_);
  KernelKey key{in, out, region};
  const auto known = kernel_maps_.find(key);
  if (known != kernel_maps_.end()) {
    ++hits_;
    return known->second;
  }
  ++misses_;
  KernelMapPtr made = KernelMap::deferred(find(in), find(out), region.offsets(in.tensor_stride));
  return kernel_maps_.emplace(std::move(key), std::move(made)).first->second;
}

RowMapPtr CoordinateManager::row_map(const CoordinateMapKey& from, const CoordinateMapKey& to) {
  const Lock lock(mutex_);
  const auto known = row_maps_.find({from, to, false});
  if (known != row_maps_.end()) {
    ++hits_;
    return known->second;
  }
  ++misses_;
  const CoordinateMapPtr source = find(from);
  RowMapPtr made = RowMap::from_index(source->find(find(to)->coordinates()), source->size());
  return row_maps_.emplace(RowKey{from, to, false}, std::move(made)).first->second;
}

RowMapPtr CoordinateManager::origin_map(const CoordinateMapKey& key) {
  const Lock lock(mutex_);
  const CoordinateMapKey origin = origin_locked(key);
  const auto known = row_maps_.find({key, origin, true});
  if (known != row_maps_.end()) {
    ++hits_;
    return known->second;
  }
  ++misses_;
  // Sorted positions run through one batch index after the other.
  const CoordinateMapPtr map = find(key);
  const int32_t* coordinates = map->coordinates().const_data_ptr<int32_t>();
  std::vector<int64_t> bounds = {0};
  std::vector<int32_t> columns(map->size());
  for (int64_t position = 0; position < map->size(); ++position) {
    columns[position] = static_cast<int32_t>(map->row_at(position));
    const bool last = position + 1 == map->size() || coordinates[map->row_at(position + 1) * (dimension_ + 1)] !=
                                                         coordinates[map->row_at(position) * (dimension_ + 1)];
    if (last) bounds.push_back(position + 1);
  }
  RowMapPtr made = RowMap::from_bounds(std::move(bounds), std::move(columns), map->size());
  return row_maps_.emplace(RowKey{key, origin, true}, std::move(made)).first->second;
}

CoordinateManager::Statistics CoordinateManager::statistics() const {
  const Lock lock(mutex_);
  Statistics sum;
  sum.coordinate_maps = static_cast<int64_t>(maps_.size());
  sum.kernel_maps = static_cast<int64_t>(kernel_maps_.size());
  sum.row_maps = static_cast<int64_t>(row_maps_.size());
  sum.hits = hits_;
  sum.misses = misses_;
  for (const auto& [key, map] : maps_) sum.bytes += map->bytes();
  for (const auto& [key, map] : kernel_maps_) {
    sum.pairs += map->pair_count();
    sum.bytes += map->bytes();
  }
  for (const auto& [key, map] : row_maps_) sum.bytes += map->entry_count() * 4 + map->out_size() * 8;
  return sum;
}

std::string CoordinateManager::to_string() const {
  const Statistics sum = statistics();
  const Lock lock(mutex_);
  std::string out = text("CoordinateManager of ", dimension_, " axes, ", sum.bytes, " bytes, ", sum.hits, " hits, ",
                         sum.misses, " misses\n");
  for (const auto& [key, map] : maps_) out += text("  map ", key.to_string(), ": ", map->size(), " coordinates\n");
  for (const auto& [key, map] : kernel_maps_) {
    const auto& [in, source, region] = key;
    out += text("  kernel map ", in.to_string(), " -> ", source.to_string(), ", ", region.to_string(), ": ",
                map->pair_count(), " pairs\n");
  }
  return out;
}

void set_global_coordinate_manager(CoordinateManagerPtr manager) {
  const Lock lock(global_mutex);
  global_manager = std::move(manager);
}

CoordinateManagerPtr global_coordinate_manager() {
  const Lock lock(global_mutex);
  return global_manager;
}

}  // namespace lockstep::sparse
