// SPDX-License-Identifier: Apache-2.0
// What a coordinate manager has learnt, to be given to another.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/sparse/coordinate_manager.h"

namespace lockstep::sparse {

CoordinateManager::Snapshot CoordinateManager::snapshot() const {
  const Lock lock(mutex_);
  Snapshot snapshot{{maps_.begin(), maps_.end()}, {}, batch_size_};
  for (const auto& [from, to] : strided_) snapshot.strided.push_back({from.first, from.second, to});
  for (const auto& [from, to] : expanded_) snapshot.expanded.push_back({from.first, from.second, to});
  for (const auto& [from, to] : unions_) snapshot.united.push_back({from, to});
  snapshot.counted = counted_;
  return snapshot;
}

void CoordinateManager::restore(const Snapshot& snapshot) {
  const Lock lock(mutex_);
  require(maps_.empty(), "CoordinateManager::restore", "the manager has ", maps_.size(),
          " maps, expected an empty one");
  merge_locked(snapshot);
}

void CoordinateManager::merge(const Snapshot& snapshot) {
  const Lock lock(mutex_);
  merge_locked(snapshot);
}

void CoordinateManager::merge_locked(const Snapshot& snapshot) {
  set_batch_size(snapshot.batch_size);
  for (const auto& [key, map] : snapshot.maps) {
    require(map != nullptr && map->dimension() == dimension_ &&
                static_cast<int64_t>(key.tensor_stride.size()) == dimension_,
            "CoordinateManager::restore", "map '", key.to_string(), "' is not one of ", dimension_, " axes");
    maps_.emplace(key, map);
    counted_ = std::max(counted_, key.number);
  }
  counted_ = std::max(counted_, snapshot.counted);
  for (const Snapshot::Strided& each : snapshot.strided) {
    static_cast<void>(find(each.from));
    static_cast<void>(find(each.to));
    strided_.emplace(std::pair{each.from, each.stride}, each.to);
  }
  for (const Snapshot::Expanded& each : snapshot.expanded) {
    static_cast<void>(find(each.from));
    static_cast<void>(find(each.to));
    expanded_.emplace(std::pair{each.from, each.geometry}, each.to);
  }
  for (const Snapshot::United& each : snapshot.united) {
    static_cast<void>(find(each.to));
    std::vector<std::pair<std::string, int64_t>> parts;
    for (const CoordinateMapKey& from : each.from) {
      static_cast<void>(find(from));
      parts.emplace_back(from.label, from.number);
    }
    unions_.emplace(each.from, each.to);
    union_numbers_.emplace(std::move(parts), each.to.number);
  }
}

}  // namespace lockstep::sparse
