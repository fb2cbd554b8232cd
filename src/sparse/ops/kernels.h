// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/sparse/detail/row_map.h"
#include "lockstep/sparse/kernel_map.h"

// Every operation of the dispatcher, once for each of its kernels. All of them trust their arguments' sizes: the public
// functions check. The linear ones come in families that are closed under differentiation, so that gradients of any
// order are theirs too.
namespace lockstep::sparse {

using MaybeTensor = std::optional<at::Tensor>;

// y[out] += x[in] W[k] for each pair of the map; with `transposed` W[k] is transposed, group by group.
#define LOCKSTEP_SPARSE_OPERATIONS                                                                                  \
  at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,   \
                         int64_t groups);                                                                           \
  /* dW[k] += x[in]^T g[out] */                                                                                     \
  at::Tensor convolution_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map, int64_t groups); \
  /* y[out][c] += x[in][c] w[k][c], and its weight gradient */                                                      \
  at::Tensor channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map);                   \
  at::Tensor channelwise_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map);                 \
  /* y[row] = sum of w[entry] x[column] over the entries of the row, w = 1 where there are no weights */            \
  at::Tensor row_sum(const at::Tensor& x, const RowMapPtr& map, const MaybeTensor& weights);                        \
  /* w[entry] = dot(g[row], x[column]) */                                                                           \
  at::Tensor row_dot(const at::Tensor& g, const at::Tensor& x, const RowMapPtr& map);                               \
  /* y[row][c] = x[column of entry chosen[row][c]][c], 0 where that is -1; and the adjoint */                       \
  at::Tensor row_pick(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& chosen);                         \
  at::Tensor row_unpick(const at::Tensor& g, const RowMapPtr& map, const at::Tensor& chosen);                       \
  /* [N, C] -> [C] */                                                                                               \
  at::Tensor column_sum(const at::Tensor& x);

LOCKSTEP_SPARSE_OPERATIONS

namespace cpu {
LOCKSTEP_SPARSE_OPERATIONS
/// The entry with the largest value for each output row and channel, the first of equal ones; NaN beats all.
at::Tensor row_argmax(const at::Tensor& x, const RowMapPtr& map);
}  // namespace cpu

namespace cuda {
LOCKSTEP_SPARSE_OPERATIONS
at::Tensor row_argmax(const at::Tensor& x, const RowMapPtr& map);
}  // namespace cuda

namespace autograd {
LOCKSTEP_SPARSE_OPERATIONS
}
#undef LOCKSTEP_SPARSE_OPERATIONS

at::Tensor row_argmax(const at::Tensor& x, const RowMapPtr& map);

/// The adjoint of column_sum: [C] -> [rows, C], every row the same.
at::Tensor expand_rows(const at::Tensor& values, int64_t rows);

}  // namespace lockstep::sparse
