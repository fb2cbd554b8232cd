// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/operations.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>

#include "lockstep/base/error.h"
#include "lockstep/context/draws.h"
#include "lockstep/numerics/random.h"
#include "lockstep/sparse/convolution.h"
#include "lockstep/sparse/detail/row_products.h"
#include "sparse/feature_checks.h"

namespace lockstep::sparse {
namespace {

/// At each point of x the global tensor's row of its batch index.
at::Tensor spread(const char* operation, const SparseTensor& x, const SparseTensor& global) {
  require(x.manager() == global.manager(), operation, "tensors ", x.to_string(), " and ", global.to_string(),
          " belong to different coordinate managers, expected one");
  const CoordinateMapKey origin = x.manager()->origin(x.key());
  const RowMapPtr map = x.manager()->origin_map(x.key())->transposed();
  if (global.key() == origin) return sum_rows(global.features(), map);
  // Another tensor with one row a batch index will do, whatever their order.
  const RowMapPtr same = x.manager()->row_map(global.key(), origin);
  require(same->entry_count() == same->out_size() && global.size() == same->out_size(), operation,
          "the global tensor is ", global.to_string(), ", expected one row for each batch index of ", x.to_string());
  return sum_rows(sum_rows(global.features(), same), map);
}

}  // namespace

SparseTensor convolution(const SparseTensor& x, const at::Tensor& kernel, const at::Tensor& bias,
                         const LayerGeometry& geometry, int64_t groups, const OutputCoordinates& coordinates) {
  const CoordinateMapKey out = coordinates.key_for(x, geometry);
  const KernelMapPtr map = x.manager()->kernel_map(x.key(), out, geometry.region, geometry.transposed);
  const at::Tensor y = convolve(x.features(), kernel.dim() == 2 ? kernel.unsqueeze(0) : kernel, map, groups);
  return {bias.defined() ? add_bias(y, bias) : y, out, x.manager()};
}

SparseTensor channelwise_convolution(const SparseTensor& x, const at::Tensor& kernel, const at::Tensor& bias,
                                     const LayerGeometry& geometry, const OutputCoordinates& coordinates) {
  const CoordinateMapKey out = coordinates.key_for(x, geometry);
  const KernelMapPtr map = x.manager()->kernel_map(x.key(), out, geometry.region, geometry.transposed);
  const at::Tensor y = convolve_channelwise(x.features(), kernel, map);
  return {bias.defined() ? add_bias(y, bias) : y, out, x.manager()};
}

namespace {
at::Tensor pool_rows(const at::Tensor& x, Pooling pooling, const RowMapPtr& map) {
  return pooling == Pooling::sum       ? sum_rows(x, map)
         : pooling == Pooling::average ? mean_rows(x, map)
                                       : max_rows(x, map);
}
}  // namespace

SparseTensor pool(const SparseTensor& x, Pooling pooling, const LayerGeometry& geometry,
                  const OutputCoordinates& coordinates) {
  const CoordinateMapKey out = coordinates.key_for(x, geometry);
  const KernelMapPtr map = x.manager()->kernel_map(x.key(), out, geometry.region, geometry.transposed);
  return {pool_rows(x.features(), pooling, map->row_map()), out, x.manager()};
}

SparseTensor global_pool(const SparseTensor& x, Pooling pooling) {
  const at::Tensor y = pool_rows(x.features(), pooling, x.manager()->origin_map(x.key()));
  return {y, x.manager()->origin(x.key()), x.manager()};
}

at::Tensor pool_pairs(const at::Tensor& x, Pooling pooling, const at::Tensor& in, const at::Tensor& out, int64_t rows) {
  check_features("pool_pairs", x, x.defined() && x.dim() > 0 ? x.size(0) : 0);
  return pool_rows(x, pooling, RowMap::from_entries(out, in, rows, x.size(0)));
}

SparseTensor broadcast(const SparseTensor& x, const SparseTensor& global) {
  return x.with_features(spread("broadcast", x, global));
}
SparseTensor broadcast_add(const SparseTensor& x, const SparseTensor& global) {
  return x.with_features(x.features() + broadcast(x, global).features());
}
SparseTensor broadcast_multiply(const SparseTensor& x, const SparseTensor& global) {
  return x.with_features(x.features() * broadcast(x, global).features());
}
SparseTensor broadcast_cat(const SparseTensor& x, const SparseTensor& global) {
  return x.with_features(at::cat({x.features(), broadcast(x, global).features()}, 1));
}

at::Tensor keyed_dropout(const at::Tensor& features, double probability, bool training) {
  require(probability >= 0 && probability <= 1, "dropout", "probability is ", probability, ", expected 0 to 1");
  if (!training || probability == 0) return features;
  if (probability == 1) return features * 0;
  const at::Tensor keep = bernoulli_(at::empty_like(features), 1 - probability, draw_key());
  return features * keep.div_(1 - probability);
}

SparseTensor keyed_dropout(const SparseTensor& x, double probability, bool training) {
  return x.with_features(keyed_dropout(x.features(), probability, training));
}

SparseTensor instance_norm(const SparseTensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  // Squares of float16 overflow from 256 on.
  if (is_low_precision(x.features().scalar_type()))
    return instance_norm(x.to(at::kFloat), weight, bias, epsilon).to(x.features().scalar_type());
  const RowMapPtr map = x.manager()->origin_map(x.key());
  const at::Tensor centred = x.features() - sum_rows(mean_rows(x.features(), map), map->transposed());
  const at::Tensor variance = mean_rows(centred * centred, map);
  at::Tensor y = centred * sum_rows(at::rsqrt(variance + epsilon), map->transposed());
  if (weight.defined()) y = scale_channels(y, weight);
  return x.with_features(bias.defined() ? add_bias(y, bias) : y);
}

}  // namespace lockstep::sparse
