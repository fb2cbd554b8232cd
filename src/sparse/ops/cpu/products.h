// SPDX-License-Identifier: Apache-2.0
// The two products, for values of any kind: only for files of lockstep_isa_sources, which know Simd<T> (base/detail/
// simd.h). All is file-local, as there.
#pragma once

#include "lockstep/base/detail/simd.h"

namespace lockstep::sparse::LOCKSTEP_ISA {
namespace {

using lockstep::LOCKSTEP_ISA::kBlockRows;
using lockstep::LOCKSTEP_ISA::Simd;

/// What products of values T are summed in.
template <class T>
using SumOf = typename Simd<T>::Sum;

/// Panels are two vectors wide; the last one may be one wide.
constexpr int kPanelVectors = 2;

/// n rounded up to whole vectors.
template <class T>
int64_t padded(int64_t n) {
  constexpr int64_t width = Simd<T>::kWidth;
  return (n + width - 1) / width * width;
}

/// The width of a panel where so many columns are left.
template <class T>
constexpr int64_t panel_width(int64_t left) {
  return left <= Simd<T>::kWidth ? Simd<T>::kWidth : kPanelVectors * Simd<T>::kWidth;
}

/// Packs a matrix for multiply(), some columns at a time, where a column's values lie side by side: at(c, i) is value i
/// of column c. Weights come from memory, so they are read in the order in which they lie there; the panel that is
/// written is in cache.
template <class T, class At>
void pack_columns(int64_t k, int64_t n, T* packed, const At& at) {
  constexpr int64_t width = Simd<T>::kWidth, panel = kPanelVectors * width;
  constexpr int64_t kTall = 4, kWide = width < 8 ? width : 8;
  for (int64_t from = 0; from < padded<T>(n); from += kWide) {
    const int64_t first = from / panel * panel, columns = panel_width<T>(n - first);
    const int64_t real = n - from < kWide ? n - from : kWide;  // none or fewer where only zeros follow
    T* to = packed + first * k + (from - first);
    int64_t i = 0;
    if (real == kWide)
      for (; i + kTall <= k; i += kTall) {
        T square[kTall][kWide];
        for (int64_t c = 0; c < kWide; ++c)
          for (int64_t r = 0; r < kTall; ++r) square[r][c] = at(from + c, i + r);
        for (int64_t r = 0; r < kTall; ++r) __builtin_memcpy(to + (i + r) * columns, square[r], sizeof square[r]);
      }
    for (; i < k; ++i)
      for (int64_t c = 0; c < kWide; ++c) to[i * columns + c] = c < real ? at(from + c, i) : T{};
  }
}

// Rows x vectors of sums stay in registers while k runs: per step, `vectors` loads of weights, one broadcast a row. The
// product starts from zero and is added at the end, so that rounding grows with k plus the number of products and not
// with all terms there are.
template <class T, int kRows, int kVectors>
inline void multiply_block(const T* const* rows, SumOf<T>* const* sums, int64_t column, int64_t k, const T* panel) {
  using S = Simd<T>;
  using Sums = Simd<SumOf<T>>;
  constexpr int width = S::kWidth;
  typename Sums::Vector sum[kRows][kVectors] = {};
  const T* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = rows[r];
  for (int64_t i = 0; i < k; ++i, panel += kVectors * width) {
    typename S::Vector weight[kVectors];
    for (int v = 0; v < kVectors; ++v) weight[v] = S::load(panel + v * width);
    for (int r = 0; r < kRows; ++r) {
      const typename S::Vector x = S::broadcast(row[r][i]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = S::multiply_add(x, weight[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      SumOf<T>* to = sums[r] + column + v * width;
      Sums::store(to, Sums::load(to) + sum[r][v]);
    }
}

template <class T, int kRows, int kVectors>
void multiply_rest(const T* const* rows, SumOf<T>* const* sums, int64_t count, int64_t column, int64_t k,
                   const T* panel) {
  if constexpr (kRows > 0) {
    if (count == kRows) return multiply_block<T, kRows, kVectors>(rows, sums, column, k, panel);
    multiply_rest<T, kRows - 1, kVectors>(rows, sums, count, column, k, panel);
  }
}

template <class T, int kVectors>
void multiply_panel(const T* const* rows, SumOf<T>* const* sums, int64_t count, int64_t column, int64_t k,
                    const T* panel) {
  int64_t r = 0;
  for (; r + kBlockRows <= count; r += kBlockRows)
    multiply_block<T, kBlockRows, kVectors>(rows + r, sums + r, column, k, panel);
  multiply_rest<T, kBlockRows - 1, kVectors>(rows + r, sums + r, count - r, column, k, panel);
}

template <class T>
void multiply(const T* const* rows, SumOf<T>* const* sums, int64_t count, int64_t k, int64_t n, const T* packed) {
  constexpr int64_t width = Simd<T>::kWidth;
  for (int64_t column = 0; column < n; column += kPanelVectors * width) {
    if (n - column <= width) {
      multiply_panel<T, 1>(rows, sums, count, column, k, packed);
    } else {
      multiply_panel<T, kPanelVectors>(rows, sums, count, column, k, packed);
      packed += k * kPanelVectors * width;
    }
  }
}

/// `total` cut into the fewest blocks of at most kBlockRows, as even as can be: block b starts at b's share.
struct Blocks {
  int64_t count, total;
  explicit Blocks(int64_t m) : count((m + kBlockRows - 1) / kBlockRows), total(m) {}
  int64_t start(int64_t block) const { return block * total / count; }
};

// Values are copied eight at a time into a packed block of rows where it holds fewer: what is too much is overwritten
// by the next ones, and the last ones fall into a gap behind the block.
constexpr int64_t kCopied = 8;
static_assert(kBlockRows <= kCopied);

/// Values of one packed block of rows with `count` values each, the gap included.
inline int64_t block_size(int64_t count) {
  return count * kBlockRows + kCopied;
}

/// Values of all blocks of m rows, and of one panel.
template <class T>
int64_t outer_scratch(int64_t count, int64_t m) {
  return Blocks(m).count * block_size(count) + count * kPanelVectors * Simd<T>::kWidth;
}

/// Rows that lie anywhere, from column `from` on.
template <class T>
struct Scattered {
  const T* const* rows;
  int64_t from;
  const T* operator[](int64_t p) const { return rows[p] + from; }
};

/// Rows of kWidth values, one after the other.
template <class T, int kWidth>
struct Packed {
  const T* data;
  const T* operator[](int64_t p) const { return data + p * kWidth; }
};

template <class T, int kRows, int kVectors, class Left, class Right>
inline void outer_block(Left a, Right b, int64_t count, SumOf<T>* sum, int64_t stride) {
  using S = Simd<T>;
  using Sums = Simd<SumOf<T>>;
  constexpr int width = S::kWidth;
  typename Sums::Vector part[kRows][kVectors] = {};
  for (int64_t p = 0; p < count; ++p) {
    typename S::Vector right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = S::load(b[p] + v * width);
    for (int r = 0; r < kRows; ++r) {
      const typename S::Vector left = S::broadcast(a[p][r]);
      for (int v = 0; v < kVectors; ++v) part[r][v] = S::multiply_add(left, right[v], part[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      SumOf<T>* to = sum + r * stride + v * width;
      Sums::store(to, Sums::load(to) + part[r][v]);
    }
}

/// A block of `rows` rows of the sum, of copies: a's are `rows` wide, b's kVectors vectors.
template <int kRows, int kVectors, class T>
void outer_packed(int64_t rows, const T* a, const T* b, int64_t count, SumOf<T>* sum, int64_t stride) {
  if constexpr (kRows > 0) {
    if (rows == kRows)
      return outer_block<T, kRows, kVectors>(Packed<T, kRows>{a}, Packed<T, kVectors * Simd<T>::kWidth>{b}, count, sum,
                                             stride);
    outer_packed<kRows - 1, kVectors>(rows, a, b, count, sum, stride);
  }
}

/// All blocks of packed rows, with one packed panel of so many columns.
template <class T>
void outer_panel(const Blocks& blocks, const T* packed, const T* panel, int64_t columns, int64_t count, SumOf<T>* sum,
                 int64_t stride) {
  const auto add =
      columns == Simd<T>::kWidth ? outer_packed<kBlockRows, 1, T> : outer_packed<kBlockRows, kPanelVectors, T>;
  for (int64_t block = 0; block < blocks.count; ++block) {
    const int64_t from = blocks.start(block), rows = blocks.start(block + 1) - from;
    add(rows, packed + block * block_size(count), panel, count, sum + from * stride, stride);
  }
}

}  // namespace
}  // namespace lockstep::sparse::LOCKSTEP_ISA
