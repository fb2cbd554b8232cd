// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "sparse/ops/cpu/matrix_kernel.h"

#include "sparse/ops/cpu/products.h"

namespace lockstep::sparse::LOCKSTEP_ISA {
namespace {

/// The first `columns` of `real` values, whole vectors; zeros where there are fewer.
template <class T>
inline void copy_padded(const T* from, int64_t real, int64_t columns, T* to) {
  if (real >= columns) {
    for (int64_t j = 0; j < columns; j += Simd<T>::kWidth) Simd<T>::store(to + j, Simd<T>::load(from + j));
  } else {
    for (int64_t j = 0; j < columns; ++j) to[j] = j < real ? from[j] : T(0);
  }
}

/// Row by row: a row's values lie side by side.
template <class T>
void pack_rows(const T* w, int64_t k, int64_t n, int64_t row_stride, T* packed) {
  for (int64_t i = 0; i < k; ++i, w += row_stride)
    for (int64_t from = 0; from < n; from += kPanelVectors * Simd<T>::kWidth) {
      const int64_t columns = panel_width<T>(n - from);
      copy_padded(w + from, n - from, columns, packed + from * k + i * columns);
    }
}

template <class T>
void pack(const T* w, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride, T* packed) {
  if (column_stride == 1)
    pack_rows(w, k, n, row_stride, packed);
  else
    pack_columns(k, n, packed, [=](int64_t column, int64_t i) { return w[column * column_stride + i]; });
}

/// A block of `rows` rows of the sum that read where they lie.
template <int kRows, int kVectors, class T>
void outer_scattered(int64_t rows, Scattered<T> a, Scattered<T> b, int64_t count, T* sum, int64_t stride) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return outer_block<T, kRows, kVectors>(a, b, count, sum, stride);
    outer_scattered<kRows - 1, kVectors>(rows, a, b, count, sum, stride);
  }
}

/// Packs the columns of each block of a's rows, one pair after the other.
template <class T>
void pack_blocks(const T* const* a, int64_t count, const Blocks& blocks, T* packed) {
  for (int64_t block = 0; block < blocks.count; ++block) {
    const int64_t from = blocks.start(block), rows = blocks.start(block + 1) - from;
    T* to = packed + block * block_size(count);
    if (from + kCopied <= blocks.total) {
      for (int64_t p = 0; p < count; ++p, to += rows) __builtin_memcpy(to, a[p] + from, kCopied * sizeof(T));
    } else {
      for (int64_t p = 0; p < count; ++p, to += rows)
        for (int64_t r = 0; r < rows; ++r) to[r] = a[p][from + r];
    }
  }
}

/// Packs columns of b's rows from `column` on, padded with zeros to `columns`.
template <class T>
void pack_part(const T* const* b, int64_t count, int64_t column, int64_t n, int64_t columns, T* packed) {
  for (int64_t p = 0; p < count; ++p, packed += columns) copy_padded(b[p] + column, n - column, columns, packed);
}

// Short rows are read where they lie: they stay in the first-level cache while all blocks of the sum pass. Long ones,
// and columns that fill no vector, are copied.
constexpr int64_t kShortRow = 64;

template <class T>
void outer(const T* const* a, const T* const* b, int64_t count, int64_t m, int64_t n, T* sum, T* scratch) {
  constexpr int64_t width = Simd<T>::kWidth;
  const int64_t stride = padded<T>(n);
  const Blocks blocks(m);
  const bool copies = m > kShortRow || n % width != 0;
  T* const panel = scratch + blocks.count * block_size(count);
  if (copies) pack_blocks(a, count, blocks, scratch);
  for (int64_t column = 0; column < n; column += kPanelVectors * width) {
    const int64_t columns = panel_width<T>(n - column);
    if (copies) {
      pack_part(b, count, column, n, columns, panel);
      outer_panel(blocks, scratch, panel, columns, count, sum + column, stride);
      continue;
    }
    const auto add =
        columns == width ? outer_scattered<kBlockRows, 1, T> : outer_scattered<kBlockRows, kPanelVectors, T>;
    for (int64_t block = 0; block < blocks.count; ++block) {
      const int64_t from = blocks.start(block), rows = blocks.start(block + 1) - from;
      add(rows, {a, from}, {b, column}, count, sum + from * stride + column, stride);
    }
  }
}

template <class T>
void store(const T* sums, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = sums[i];
}

template <class T>
constexpr MatrixKernels<T> kKernels = {padded<T>, pack<T>, multiply<T>, outer_scratch<T>, outer<T>, store<T>};

}  // namespace

const MatrixKernels<float>& matrix_kernels_f32() {
  return kKernels<float>;
}
const MatrixKernels<double>& matrix_kernels_f64() {
  return kKernels<double>;
}

}  // namespace lockstep::sparse::LOCKSTEP_ISA
