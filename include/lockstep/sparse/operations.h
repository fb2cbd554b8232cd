// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/sparse/output_coordinates.h"
#include "lockstep/sparse/sparse_tensor.h"

/// Layers as functions of sparse tensors. Each finds its output coordinates and its maps in the tensor's manager.
namespace lockstep::sparse {

/// Kernel [K, Cin / groups, Cout], or [Cin, Cout] where K = 1, and bias (may be undefined) [1, Cout]. With
/// `coordinates` the outputs lie there instead of where the geometry says.
SparseTensor convolution(const SparseTensor& x, const at::Tensor& kernel, const at::Tensor& bias,
                         const LayerGeometry& geometry, int64_t groups = 1, const OutputCoordinates& coordinates = {});
/// Kernel [K, C].
SparseTensor channelwise_convolution(const SparseTensor& x, const at::Tensor& kernel, const at::Tensor& bias,
                                     const LayerGeometry& geometry, const OutputCoordinates& coordinates = {});

enum class Pooling { sum, average, max };

/// Over the inputs that each output's kernel meets; an average divides by the number of those present. A transposed
/// geometry makes it unpooling.
SparseTensor pool(const SparseTensor& x, Pooling pooling, const LayerGeometry& geometry,
                  const OutputCoordinates& coordinates = {});
/// One row for each batch index that occurs.
SparseTensor global_pool(const SparseTensor& x, Pooling pooling);

/// Pooling by a list of pairs: each of `rows` outputs takes rows in[i] of x [N, C] for all i with out[i] of its own. in
/// and out are int64 [pairs]; an output without any is zero.
at::Tensor pool_pairs(const at::Tensor& x, Pooling pooling, const at::Tensor& in, const at::Tensor& out, int64_t rows);

/// Row by row with the row of `global` (as of global_pool) that has its batch index.
SparseTensor broadcast(const SparseTensor& x, const SparseTensor& global);
SparseTensor broadcast_add(const SparseTensor& x, const SparseTensor& global);
SparseTensor broadcast_multiply(const SparseTensor& x, const SparseTensor& global);
SparseTensor broadcast_cat(const SparseTensor& x, const SparseTensor& global);

/// In training each value is zero with `probability`, else divided by what is left; else x itself. Values are drawn by
/// key (numerics/random.h): from this thread's RandomScope, so that a mask follows from seed, step and replica, or else
/// from the default generator; the same for any number of threads.
SparseTensor keyed_dropout(const SparseTensor& x, double probability, bool training);
at::Tensor keyed_dropout(const at::Tensor& features, double probability, bool training);

/// Each batch entry's channels to mean 0 and variance 1, times weight [1, C] plus bias [1, C]. The variance
/// is that about the mean.
SparseTensor instance_norm(const SparseTensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           double epsilon = 1e-5);

/// Batch norm of features [N, C] over rows. In training it uses the batch's statistics and moves the running ones
/// (which may be undefined) towards them by `momentum`. The same bits for any number of threads, unlike torch's. N = 0
/// is legal and leaves the running statistics alone.
at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_var, bool training, double momentum,
                      double epsilon);

}  // namespace lockstep::sparse
