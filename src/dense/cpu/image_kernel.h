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

/// Windows on the points of an image: window w < count is a row of points that begins at point begins[w].
struct Windows {
  const int64_t* begins;
  int64_t count;
  Rows points;
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
  /// out[w * n + j] = the mean of base[point * n + j] over the points of window w.
  void (*average)(const T* base, const Windows& windows, int64_t n, T* out);
  /// Every point of window w gets its part of b[w * n + j] added: average's adjoint.
  void (*spread)(const T* b, const Windows& windows, int64_t n, T* base);
  /// average() with zeros in place of negative values. `signs` says of each value whether it was positive: padded(n)
  /// bytes a point.
  void (*average_positive)(const T* base, const Windows& windows, int64_t n, int8_t* signs, T* out);
  /// Its part of b[w * n + j] in every point of window w whose sign is positive, zero in the others.
  void (*spread_positive)(const T* b, const Windows& windows, int64_t n, const int8_t* signs, T* base);
  /// The pieces of each row of values (rows.size() of them) are added where the row begins: multiply's adjoint.
  void (*scatter)(const T* values, const int64_t* begins, int64_t count, const Rows& rows, T* base);
};

LOCKSTEP_DECLARE_ISA(const ImageKernels<float>& image_kernels_f32(); const ImageKernels<double>& image_kernels_f64())

}  // namespace lockstep::dense
