// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/detail/row_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include "lockstep/base/error.h"
#include "sparse/feature_checks.h"
#include "sparse/maps/cuda/row_lengths.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse {

namespace {

// The lengths of rows, on x's device; of an empty row 1.
at::Tensor divisors(const at::Tensor& x, const RowMap& map) {
  const at::Tensor lengths =
      x.is_cuda() ? cuda::row_lengths(map, x.device(), x.scalar_type()) : map.row_lengths(x.scalar_type());
  return lengths.clamp_min(1).unsqueeze(1);
}

}  // namespace

at::Tensor sum_rows(const at::Tensor& x, const RowMapPtr& map) {
  check_features("sum_rows", x, map->in_size());
  return row_sum(x, map, std::nullopt);
}

at::Tensor mean_rows(const at::Tensor& x, const RowMapPtr& map) {
  check_features("mean_rows", x, map->in_size());
  // Its own sum could overflow.
  if (is_low_precision(x.scalar_type())) return mean_rows(x.to(at::kFloat), map).to(x.scalar_type());
  return row_sum(x, map, std::nullopt) / divisors(x, *map);
}

at::Tensor max_rows(const at::Tensor& x, const RowMapPtr& map) {
  check_features("max_rows", x, map->in_size());
  return row_pick(x, map, row_argmax(x.detach(), map));
}

at::Tensor weigh_rows(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& weights) {
  check_features("weigh_rows", x, map->in_size());
  require(weights.dim() == 1 && weights.size(0) == map->entry_count(), "weigh_rows", "weights are ", describe(weights),
          ", expected [", map->entry_count(), "]");
  const at::Tensor given = weights.to(x.device());  // those that follow from coordinates are made on the CPU
  check_same_kind("weigh_rows", "weights", given, x);
  return row_sum(x, map, given);
}

at::Tensor take_rows(const at::Tensor& x, const at::Tensor& index) {
  return sum_rows(x, RowMap::from_index(index, x.size(0)));
}

at::Tensor put_rows(const at::Tensor& x, const at::Tensor& index, int64_t rows) {
  require(index.dim() == 1 && index.size(0) == x.size(0), "put_rows", "index is ", describe(index), ", expected [",
          x.size(0), "]");
  return sum_rows(x, RowMap::from_index(index, rows)->transposed());
}

at::Tensor spmm(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& values, int64_t size,
                const at::Tensor& x, bool average) {
  if (average && is_low_precision(x.scalar_type()))
    return spmm(rows, columns, values.to(at::kFloat), size, x.to(at::kFloat), average).to(x.scalar_type());
  const RowMapPtr map = RowMap::from_entries(rows, columns, size, x.size(0));
  const at::Tensor sum = weigh_rows(x, map, values);
  return average ? sum / divisors(x, *map) : sum;
}

}  // namespace lockstep::sparse
