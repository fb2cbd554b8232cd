// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/context/detail/crossing.h"
#include "lockstep/numerics/device.h"
#include "lockstep/points/sorted_coordinates.h"
#include "lockstep/sparse/coordinate_manager.h"

namespace lockstep::sparse {

/// What becomes of features whose coordinates are equal.
enum class Quantization {
  first,    ///< those of the first row stay
  average,  ///< each weighs the same
  sum,
  max,
  none,  ///< equal coordinates are an error
};

/// Points [M], each with the corners of the grid around it that a tensor has: entries of `map` from rows of the tensor
/// to points, and one weight for each, float64 [entries].
struct InterpolationMap {
  RowMapPtr map;
  at::Tensor weights;
};

/// Features [N, C] at N different coordinates (batch index, then D integers), which belong to a coordinate manager. A
/// value: copies share features and coordinates.
///
/// Row order: a tensor made from coordinates that are all different keeps their order; of equal ones the first keeps
/// its place. Outputs on other coordinates are sorted by batch index, then axis by axis.
class SparseTensor {
 public:
  SparseTensor() = default;
  /// Features [N, C] of coordinates int32 [N, 1 + D], all multiples of the tensor stride (default 1 on each axis). They
  /// are added to `manager`, or to the process's global one, or to one of their own.
  SparseTensor(const at::Tensor& features, const at::Tensor& coordinates, AxisValues tensor_stride = {},
               Quantization quantization = Quantization::first, CoordinateManagerPtr manager = nullptr);
  /// Features [N, C] of coordinates that are known to be sorted, at tensor stride 1: quicker, as nothing is sorted.
  SparseTensor(const at::Tensor& features, const points::SortedCoordinates& coordinates,
               CoordinateManagerPtr manager = nullptr);
  /// Features of coordinates that `manager` knows as `key`.
  SparseTensor(at::Tensor features, CoordinateMapKey key, CoordinateManagerPtr manager);

  bool defined() const { return features_.defined(); }
  const at::Tensor& features() const { return features_; }
  /// int32 [N, 1 + D], not to be written to.
  at::Tensor coordinates() const { return map().coordinates(); }
  const CoordinateMapKey& key() const { return key_; }
  const CoordinateManagerPtr& manager() const;
  const AxisValues& tensor_stride() const { return key_.tensor_stride; }
  int64_t dimension() const { return manager()->dimension(); }
  int64_t size() const { return features_.size(0); }
  int64_t channels() const { return features_.size(1); }

  /// Rows of the input that this tensor was made of: int64 [N], and for each input row its row here, int64 [inputs].
  at::Tensor unique_index() const;
  at::Tensor inverse_mapping() const;

  /// Other features at the same coordinates. Throws Error on another number of rows.
  SparseTensor with_features(at::Tensor features) const;
  SparseTensor detach() const { return with_features(features_.detach()); }
  /// Another type or device of features; coordinates stay on the CPU.
  SparseTensor to(at::ScalarType type) const { return with_features(features_.to(type)); }
  SparseTensor to(at::Device device) const;
  /// This tensor. Throws Error that names the first row with a feature that is NaN or infinite. Nothing else looks.
  const SparseTensor& check_finite() const;

  /// The batch indices that occur, ascending.
  std::vector<int64_t> batch_indices() const;
  /// The number of batch entries: up to the largest index that occurs, or as many as the manager was told.
  int64_t batch_size() const;
  /// Rows of one batch index, ascending: int64 [n]. Empty for an index that does not occur.
  at::Tensor rows_at(int64_t batch) const;
  at::Tensor features_at(int64_t batch) const {
    return features_.index_select(0, rows_at(batch).to(features_.device()));
  }
  /// int32 [n, D], without the batch index.
  at::Tensor coordinates_at(int64_t batch) const;
  /// One part for each of batch_size() batch indices; a part may be empty.
  std::vector<at::Tensor> decomposed_features() const;
  std::vector<at::Tensor> decomposed_coordinates() const;

  /// Features as a dense tensor [batches, C, extents...], zero elsewhere, and the coordinate of its corner (int64 [D]).
  /// Coordinates are divided by the tensor stride. Without `shape` it reaches from `minimum` (default: the smallest
  /// coordinate) to the largest one. Throws Error where a coordinate falls outside.
  std::pair<at::Tensor, at::Tensor> dense(const std::optional<std::vector<int64_t>>& shape = std::nullopt,
                                          const std::optional<AxisValues>& minimum = std::nullopt) const;

  /// Features at integer coordinates int32 [M, 1 + D]: zero where this tensor has none.
  at::Tensor features_at_coordinates(const at::Tensor& coordinates) const;
  /// Features at real coordinates [M, 1 + D], weighted linearly from the surrounding corners of the grid; corners that
  /// this tensor lacks count as zero.
  at::Tensor interpolate(const at::Tensor& coordinates) const;
  InterpolationMap interpolation_map(const at::Tensor& coordinates) const;

  std::string to_string() const;

 private:
  const CoordinateMap& map() const;

  at::Tensor features_;
  CoordinateMapKey key_;
  CoordinateManagerPtr manager_;
  CoordinateMapPtr map_;
  at::Tensor unique_, inverse_;
};

/// Element by element. Tensors at different coordinates of one manager are added, subtracted, ... at the union of
/// their coordinates, where what is missing counts as zero; those of different managers throw Error.
SparseTensor operator+(const SparseTensor& a, const SparseTensor& b);
SparseTensor operator-(const SparseTensor& a, const SparseTensor& b);
SparseTensor operator*(const SparseTensor& a, const SparseTensor& b);
SparseTensor operator/(const SparseTensor& a, const SparseTensor& b);
SparseTensor operator+(const SparseTensor& a, double b);
SparseTensor operator-(const SparseTensor& a, double b);
SparseTensor operator*(const SparseTensor& a, double b);
SparseTensor operator/(const SparseTensor& a, double b);
SparseTensor operator+(double a, const SparseTensor& b);
SparseTensor operator-(double a, const SparseTensor& b);
SparseTensor operator*(double a, const SparseTensor& b);
SparseTensor operator/(double a, const SparseTensor& b);
SparseTensor operator-(const SparseTensor& a);
SparseTensor pow(const SparseTensor& a, double exponent);

/// With a tensor [N, C] or [N, 1], row by row, or with one value a channel: [C], [1, C], [1] or [].
SparseTensor operator+(const SparseTensor& a, const at::Tensor& b);
SparseTensor operator-(const SparseTensor& a, const at::Tensor& b);
SparseTensor operator*(const SparseTensor& a, const at::Tensor& b);
SparseTensor operator/(const SparseTensor& a, const at::Tensor& b);

/// Channels side by side. All must have the same coordinates.
SparseTensor cat(const std::vector<SparseTensor>& tensors);
/// Sum, mean and variance (of the population) over tensors with the same coordinates and channels.
SparseTensor stack_sum(const std::vector<SparseTensor>& tensors);
SparseTensor stack_mean(const std::vector<SparseTensor>& tensors);
SparseTensor stack_var(const std::vector<SparseTensor>& tensors);

/// The sum at the union of all coordinates; what is missing counts as zero.
SparseTensor unite(const std::vector<SparseTensor>& tensors);
/// The rows for which `keep`, bool [N], holds.
SparseTensor prune(const SparseTensor& x, const at::Tensor& keep);

/// A dense tensor [batches, C, extents...] as a sparse one: points where some channel is not zero, or all points.
SparseTensor to_sparse(const at::Tensor& dense, bool remove_zeros = true, CoordinateManagerPtr manager = nullptr);

/// How parallel::scatter and gather take sparse tensors: by batch entries, in runs whose lengths differ by at most one,
/// the longer ones first; some may have no points. Each share counts its entries from 0 and has a manager of its own.
/// Differentiable. gather is the inverse; its parts must have one tensor stride and number of channels. `dim` is 0.
std::vector<SparseTensor> lockstep_scatter(const SparseTensor& x, const std::vector<Device>& devices, int64_t dim);
SparseTensor lockstep_gather(const std::vector<SparseTensor>& parts, const Device& device, int64_t dim);
inline at::Device lockstep_device(const SparseTensor& x) {
  return x.features().device();
}
/// How a network's stages hand sparse tensors on to another process (context/detail/crossing.h). Throws Error where the
/// manager is the process's global one, whose maps are of all replicas there.
void lockstep_enter(const SparseTensor& x, Crossing& pass);
Luggage lockstep_pack(const SparseTensor& x, Crossing& pass, int64_t to);
SparseTensor lockstep_unpack(const at::Tensor& features, const Luggage& luggage, Crossing& pass, int64_t from,
                             const SparseTensor*);

/// A tensor with one row for each point of x, labels say, cut as x is. It is not differentiated.
std::vector<at::Tensor> scatter_rows(const at::Tensor& rows, const SparseTensor& x, const std::vector<Device>& devices);

}  // namespace lockstep::sparse
