// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

// The two small matrix products that a sparse convolution is made of, on rows that lie anywhere. Weights are packed
// into panels a few vectors wide, sums are padded to whole vectors, so no kernel has a case for the last columns.
namespace lockstep::sparse {

/// The same functions for rows of float and double, and of bfloat16, whose sums are float (bf16_kernel.h).
template <class Row, class Sum = Row>
struct MatrixKernels {
  /// Columns that sums of n columns take: n rounded up to whole vectors.
  int64_t (*padded)(int64_t n);
  /// Packs a matrix with elements w[i * row_stride + j * column_stride], i < k, j < n, into k * padded(n) values.
  /// One of the strides is 1.
  void (*pack)(const Row* w, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride, Row* packed);
  /// sums[r][0 .. padded(n)) += rows[r][0 .. k) W for each of `count` rows; one row of sums may occur only once.
  void (*multiply)(const Row* const* rows, Sum* const* sums, int64_t count, int64_t k, int64_t n, const Row* packed);
  /// Values of scratch that outer() needs for `count` pairs.
  int64_t (*outer_scratch)(int64_t count, int64_t m);
  /// sum[i][j] += over all pairs a[p][i] * b[p][j], i < m, j < padded(n); rows of `sum` are padded(n) apart.
  void (*outer)(const Row* const* a, const Row* const* b, int64_t count, int64_t m, int64_t n, Sum* sum, Row* scratch);
  /// Writes n sums as values of a row.
  void (*store)(const Sum* sums, int64_t n, Row* to);
};

LOCKSTEP_DECLARE_ISA(const MatrixKernels<float>& matrix_kernels_f32();
                     const MatrixKernels<double>& matrix_kernels_f64())

}  // namespace lockstep::sparse
