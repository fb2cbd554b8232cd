// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

namespace lockstep::dense {

/// What convolutions and pooling are made of, in one instruction set: work on rows that lie somewhere in an image. A
/// row is `lines` pieces of `length` values that begin `line_step` apart. Every sum is made in one order, whatever the
/// alignment and the number of rows.
struct Rows {
  int64_t lines, length, line_step;

  int64_t size() const { return lines * length; }
};

template <class T>
struct ImageKernels {
  /// n rounded up to whole vectors.
  int64_t (*padded)(int64_t n);
  /// Packs the matrix with elements w[i * row_step + j * column_step], i < rows.size(), j < n, for products with such
  /// rows, into at most rows.size() * padded(n) values.
  void (*pack)(const T* w, const Rows& rows, int64_t n, int64_t row_step, int64_t column_step, T* packed);
  /// out[p * n + j] = start[j] + sum over i of row_p[i] * W[i][j], where row p begins at base + begins[p] and p <
  /// count. No start: zero.
  void (*multiply)(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, const T* packed,
                   const T* start, T* out);
  /// sum[i * padded(n) + j] += sum over p of row_p[i] * b[p * n + j].
  void (*outer)(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, const T* b, T* sum);
  /// sum[j] += sum over p of b[p * n + j].
  void (*sum_rows)(const T* b, int64_t count, int64_t n, T* sum);
  /// out[p * n + j] = scale * the sum of row_p over its taps, each n values: a line holds length / n of them.
  void (*average)(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, T scale, T* out);
  /// Every tap of row p gets scale * b[p * n + j] added: average's adjoint.
  void (*spread)(const T* b, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, T scale, T* base);
  /// average() with zeros in place of negative values. Here begins and rows count points of n values, and `signs` says
  /// of each value whether it was positive: padded(n) bytes a point.
  void (*average_positive)(const T* base, const int64_t* begins, int64_t count, const Rows& points, int64_t n, T scale,
                           int8_t* signs, T* out);
  /// scale * b[p * n + j] in every tap of row p whose sign is positive, zero in the others.
  void (*spread_positive)(const T* b, const int64_t* begins, int64_t count, const Rows& points, int64_t n, T scale,
                          const int8_t* signs, T* base);
  /// The pieces of each row of values (rows.size() of them) are added where the row begins: multiply's adjoint.
  void (*scatter)(const T* values, const int64_t* begins, int64_t count, const Rows& rows, T* base);
};

LOCKSTEP_DECLARE_ISA(const ImageKernels<float>& image_kernels_f32(); const ImageKernels<double>& image_kernels_f64())

}  // namespace lockstep::dense
