// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/sparse/coordinate_map.h"
#include "lockstep/sparse/detail/row_map.h"
#include "lockstep/sparse/kernel_map.h"
#include "lockstep/sparse/kernel_region.h"

namespace lockstep::sparse {

/// Names a coordinate map of a manager: its tensor stride, and a label and a number that tell apart maps of the same
/// stride. Maps that come from one another by strides share both.
struct CoordinateMapKey {
  AxisValues tensor_stride;
  std::string label{};  ///< the user's name for the coordinates, often empty
  int64_t number = 0;   ///< 0, or one that the manager has counted to, where the coordinates are others of that label

  std::string to_string() const;
  auto operator<=>(const CoordinateMapKey&) const = default;
};

/// How a layer's outputs lie to its inputs.
struct LayerGeometry {
  KernelRegion region;
  AxisValues stride;
  bool transposed = false;          ///< outputs lie finer
  bool generative = false;          ///< transposed, on every coordinate that an input reaches
  bool expand_coordinates = false;  ///< not transposed, on every coordinate that an input reaches

  std::string to_string() const;
  auto operator<=>(const LayerGeometry&) const = default;
};

/// The coordinate maps of some tensors that belong together (those of one network's pass, usually), and the maps
/// between them, each made once. Tensors share it; it goes, with all it holds, when the last of them goes. Safe to use
/// from several threads.
class CoordinateManager {
 public:
  explicit CoordinateManager(int64_t dimension);
  CoordinateManager(const CoordinateManager&) = delete;
  CoordinateManager& operator=(const CoordinateManager&) = delete;

  int64_t dimension() const { return dimension_; }

  /// The number of batch entries, where somebody knows it: the last ones may have no points. 0 where nobody said.
  int64_t batch_size() const { return batch_size_; }
  void set_batch_size(int64_t entries);

  struct Inserted {
    CoordinateMapKey key;
    at::Tensor unique, inverse;  ///< as of CoordinateMap::insert
  };
  /// Adds coordinates under (tensor_stride, label, 0), or another number where that is taken. Throws Error unless all
  /// are multiples of the tensor stride; of a map made before that is the caller's to see to. A stride of 0 holds on an
  /// axis where all are 0.
  Inserted insert(const at::Tensor& coordinates, AxisValues tensor_stride, const std::string& label = "");
  CoordinateMapKey insert(CoordinateMapPtr map, AxisValues tensor_stride, const std::string& label = "");
  /// The same under a number that no map has, whatever its stride: layers don't take the map for a finer one of theirs.
  Inserted insert_apart(const at::Tensor& coordinates, AxisValues tensor_stride);
  /// The key here of a map that another manager has; it is added where it is not here yet.
  CoordinateMapKey share(const CoordinateManager& from, const CoordinateMapKey& key);

  bool contains(const CoordinateMapKey& key) const;
  /// Throws Error, listing the keys there are, when `key` is none of them.
  CoordinateMapPtr map(const CoordinateMapKey& key) const;
  int64_t size(const CoordinateMapKey& key) const { return map(key)->size(); }
  std::vector<CoordinateMapKey> keys() const;

  /// The map with coordinates rounded down to multiples of tensor stride times `stride`.
  CoordinateMapKey stride(const CoordinateMapKey& key, const AxisValues& stride);
  /// One coordinate, the origin, for each batch index of `key`. Its tensor stride is 0.
  CoordinateMapKey origin(const CoordinateMapKey& key);
  CoordinateMapKey prune(const CoordinateMapKey& key, const at::Tensor& keep);
  CoordinateMapKey unite(const std::vector<CoordinateMapKey>& keys);

  /// Where a layer puts its outputs for inputs at `in`. Transposed layers use the map that `in` was strided from, or
  /// else the finer map of the same label and number where there is one, or else the one of no label and number 0 (of a
  /// pruned map: the whole finer one), or else, as generative ones do, a map of all that they reach, which gets label
  /// and number where these are free. Throws Error where a transposed layer's stride does not divide the tensor stride.
  CoordinateMapKey out_key(const CoordinateMapKey& in, const LayerGeometry& geometry);
  /// The tensor stride that they have there. Throws as out_key does.
  AxisValues out_stride(const CoordinateMapKey& in, const LayerGeometry& geometry) const;
  /// Offsets are scaled by the tensor stride of the finer side: of the input, or of a transposed layer's output.
  KernelMapPtr kernel_map(const CoordinateMapKey& in, const CoordinateMapKey& out, const KernelRegion& region,
                          bool transposed = false);
  /// Row r of `to` takes the row of `from` with the same coordinate, or nothing.
  RowMapPtr row_map(const CoordinateMapKey& from, const CoordinateMapKey& to);
  /// Rows of the origin take all rows of `key` with their batch index.
  RowMapPtr origin_map(const CoordinateMapKey& key);

  /// What makes another manager this one again: the maps, which of them came from which, and the batch size. Kernel
  /// maps and the like are made anew when they are asked for.
  struct Snapshot {
    struct Strided {
      CoordinateMapKey from;
      AxisValues stride;
      CoordinateMapKey to;
    };
    struct Expanded {
      CoordinateMapKey from;
      LayerGeometry geometry;
      CoordinateMapKey to;
    };
    struct United {
      std::vector<CoordinateMapKey> from;
      CoordinateMapKey to;
    };
    std::vector<std::pair<CoordinateMapKey, CoordinateMapPtr>> maps;
    std::vector<Strided> strided;
    int64_t batch_size = 0;
    std::vector<Expanded> expanded{};
    std::vector<United> united{};
    int64_t counted = 0;  ///< the largest number that a map has or had
  };
  Snapshot snapshot() const;
  /// Throws Error unless this manager is empty, the maps have its dimension, and all that is said is of maps given.
  void restore(const Snapshot& snapshot);
  /// Adds what is not here yet: from a manager that was this one's copy, and has gone on.
  void merge(const Snapshot& snapshot);

  struct Statistics {
    int64_t coordinate_maps = 0, kernel_maps = 0, row_maps = 0, pairs = 0, bytes = 0;
    int64_t hits = 0, misses = 0;  ///< of kernel and row maps asked for
  };
  Statistics statistics() const;
  /// One line for each map.
  std::string to_string() const;

 private:
  using KernelKey = std::tuple<CoordinateMapKey, CoordinateMapKey, KernelRegion>;
  using RowKey = std::tuple<CoordinateMapKey, CoordinateMapKey, bool>;

  /// Under this key, or another number where that is taken.
  CoordinateMapKey add(CoordinateMapPtr map, CoordinateMapKey key) LOCKSTEP_REQUIRES(mutex_);
  CoordinateMapPtr find(const CoordinateMapKey& key) const LOCKSTEP_REQUIRES(mutex_);
  CoordinateMapKey stride_locked(const CoordinateMapKey& key, const AxisValues& stride) LOCKSTEP_REQUIRES(mutex_);
  CoordinateMapKey origin_locked(const CoordinateMapKey& key) LOCKSTEP_REQUIRES(mutex_);
  CoordinateMapKey out_key_locked(const CoordinateMapKey& in, const LayerGeometry& geometry) LOCKSTEP_REQUIRES(mutex_);
  void merge_locked(const Snapshot& snapshot) LOCKSTEP_REQUIRES(mutex_);

  int64_t dimension_;
  std::atomic<int64_t> batch_size_{0};
  mutable Mutex mutex_;
  std::map<CoordinateMapKey, CoordinateMapPtr> maps_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::pair<CoordinateMapKey, AxisValues>, CoordinateMapKey> strided_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::pair<CoordinateMapKey, LayerGeometry>, CoordinateMapKey> expanded_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<CoordinateMapKey, CoordinateMapKey> origins_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::vector<CoordinateMapKey>, CoordinateMapKey> unions_ LOCKSTEP_GUARDED_BY(mutex_);
  /// The number of a union, by labels and numbers of its parts: those of the same parts on other strides have it too.
  std::map<std::vector<std::pair<std::string, int64_t>>, int64_t> union_numbers_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<KernelKey, KernelMapPtr> kernel_maps_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<RowKey, RowMapPtr> row_maps_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t counted_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  ///< the largest number of a key
  int64_t hits_ LOCKSTEP_GUARDED_BY(mutex_) = 0, misses_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

using CoordinateManagerPtr = std::shared_ptr<CoordinateManager>;

/// The manager that tensors made without one share, when the process asked for that; null by default, and each such
/// tensor gets its own. A shared manager keeps its maps until it is replaced.
void set_global_coordinate_manager(CoordinateManagerPtr manager);
CoordinateManagerPtr global_coordinate_manager();

}  // namespace lockstep::sparse
