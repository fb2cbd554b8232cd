// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/sparse/sparse_tensor.h"

namespace lockstep::sparse {

/// Features [N, C] at N real points (batch index, then D values), not all different: a point cloud as it was measured.
/// A value. It shares its manager with the sparse tensors made of it.
class TensorField {
 public:
  TensorField() = default;
  /// Coordinates float32 or float64 [N, 1 + D] on the CPU; the batch index is a whole number. Throws Error on values
  /// that are not finite or not within int32.
  TensorField(at::Tensor features, at::Tensor coordinates, CoordinateManagerPtr manager = nullptr);

  const at::Tensor& features() const { return features_; }
  const at::Tensor& coordinates() const { return coordinates_; }
  const CoordinateManagerPtr& manager() const;
  int64_t dimension() const { return manager()->dimension(); }
  int64_t size() const { return features_.size(0); }
  TensorField with_features(at::Tensor features) const;

  /// Points rounded down to the grid; features of points in one voxel are averaged, summed, ... as asked.
  SparseTensor sparse(AxisValues tensor_stride = {}, Quantization quantization = Quantization::average) const;
  /// The row of x that each point falls into: int64 [N], -1 where there is none.
  at::Tensor inverse_mapping(const SparseTensor& x) const;
  /// Each point takes the features of its voxel in x; zero where there is none.
  TensorField slice(const SparseTensor& x) const;
  /// Channels of this field, then those of slice(x).
  TensorField cat_slice(const SparseTensor& x) const;
  /// Each point takes features of x weighted linearly from the corners around it.
  TensorField interpolate(const SparseTensor& x) const;
  /// Features spread linearly over the 2^D corners around each point: the adjoint of interpolate().
  SparseTensor splat() const;

 private:
  at::Tensor voxels(const AxisValues& tensor_stride) const;

  at::Tensor features_, coordinates_;
  CoordinateManagerPtr manager_;
};

/// A tensor's voxels as points, with its features and in its manager.
TensorField points_of(const SparseTensor& voxels);

/// As for sparse tensors: by batch entries.
std::vector<TensorField> lockstep_scatter(const TensorField& x, const std::vector<Device>& devices, int64_t dim);
TensorField lockstep_gather(const std::vector<TensorField>& parts, const Device& device, int64_t dim);
inline at::Device lockstep_device(const TensorField& x) {
  return x.features().device();
}

/// How a network's stages hand fields on to another process (context/detail/crossing.h). Throws Error where the manager
/// is the process's global one, whose maps are of all replicas there.
void lockstep_enter(const TensorField& x, Crossing& pass);
Luggage lockstep_pack(const TensorField& x, Crossing& pass, int64_t to);
TensorField lockstep_unpack(const at::Tensor& features, const Luggage& luggage, Crossing& pass, int64_t from,
                            const TensorField*);

/// Joins point clouds into one table with batch indices: each [n_i, D] of one type becomes rows of [N, 1 + D].
at::Tensor batched_coordinates(const std::vector<at::Tensor>& coordinates);

struct Collated {
  at::Tensor coordinates, features, labels;  ///< labels are undefined where none were given
};
Collated sparse_collate(const std::vector<at::Tensor>& coordinates, const std::vector<at::Tensor>& features,
                        const std::vector<at::Tensor>& labels = {});

struct Quantized {
  at::Tensor coordinates;  ///< int32 [M, D]
  at::Tensor features;     ///< of the first point in each voxel
  at::Tensor labels;       ///< int64 [M]; `ignore_label` where points of one voxel disagree
  at::Tensor unique;       ///< int64 [M]
  at::Tensor inverse;      ///< int64 [N]
};
/// Points [N, D] of one cloud, divided by `quantization_size` and rounded down; the first point of a voxel stands for
/// it. Features and labels may be undefined.
Quantized sparse_quantize(const at::Tensor& coordinates, const at::Tensor& features = {}, const at::Tensor& labels = {},
                          int64_t ignore_label = -100, double quantization_size = 1);

}  // namespace lockstep::sparse
