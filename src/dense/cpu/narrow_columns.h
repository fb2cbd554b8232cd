// SPDX-License-Identifier: Apache-2.0
// The last columns of a product, where they fill a small part of a vector: 50 columns are three vectors and two more. A
// vector then holds these columns for several terms of the sum at once. Only for files of lockstep_isa_sources.
#pragma once

#include "lockstep/base/detail/simd.h"

namespace lockstep::dense::LOCKSTEP_ISA {
namespace {

using lockstep::LOCKSTEP_ISA::Simd;

/// How many of the last `rest` columns, less than a vector, are computed this way: a width that a vector is a multiple
/// of, or none.
template <class T>
constexpr int narrow_width(int64_t) {
  return 0;
}

/// kColumns columns of kTerms terms.
template <class T, int kColumns>
struct Narrow;

#if defined(__AVX512F__)
template <>
constexpr int narrow_width<float>(int64_t rest) {
  return rest == 0 || rest > 4 ? 0 : rest > 2 ? 4 : 2;
}

template <int kColumns>
struct Narrow<float, kColumns> {
  using Vector = Simd<float>::Vector;
  static constexpr int kTerms = Simd<float>::kWidth / kColumns;

  /// Each of x's first `terms` values, kColumns times; then zeros.
  static inline Vector spread(const float* x, int64_t terms) {
    const Vector given = Simd<float>::load_part(x, terms);
    if constexpr (kColumns == 2)
      return __builtin_shufflevector(given, given, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    else
      return __builtin_shufflevector(given, given, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  }
  /// The first `columns` values and zeros up to kColumns, once for each term.
  static inline Vector repeat(const float* from, int64_t columns) {
    const Vector given = Simd<float>::load_part(from, columns);
    if constexpr (kColumns == 2)
      return __builtin_shufflevector(given, given, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1);
    else
      return __builtin_shufflevector(given, given, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  }
  /// The terms added up, half to half, in the first kColumns values.
  static inline Vector fold(Vector sums) {
    sums += __builtin_shufflevector(sums, sums, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    sums += __builtin_shufflevector(sums, sums, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    if constexpr (kColumns == 2)
      sums += __builtin_shufflevector(sums, sums, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return sums;
  }
};
#endif

/// The narrow columns of a block's sums, beside multiply_block's: nothing where there are none.
template <class T, int kRows, int kColumns>
struct NarrowSums {
  using Columns = Narrow<T, kColumns>;
  typename Simd<T>::Vector sum[kRows];

  void begin(const T* start, int64_t columns) {
    for (int r = 0; r < kRows; ++r)
      sum[r] = start == nullptr ? typename Simd<T>::Vector{} : Simd<T>::load_part(start, columns);
  }
  void add(const T* const* row, int64_t from, int64_t terms, const T* weights) {
    const auto weight = Simd<T>::load(weights);
    for (int r = 0; r < kRows; ++r)
      sum[r] = Simd<T>::multiply_add(Columns::spread(row[r] + from, terms), weight, sum[r]);
  }
  void store(T* out, int64_t n, int64_t columns) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) Simd<T>::store_part(out + r * n, Columns::fold(sum[r]), columns);
  }
};

template <class T, int kRows>
struct NarrowSums<T, kRows, 0> {};

/// The narrow columns of a block of outer products: a vector holds them for kTerms rows of the sum.
template <class T, int kRows, int kColumns>
struct NarrowOuter {
  using Columns = Narrow<T, kColumns>;
  static constexpr int kTerms = Columns::kTerms, kVectors = (kRows + kTerms - 1) / kTerms;
  typename Simd<T>::Vector part[kVectors] = {};

  void add(const T* left, const T* right, int64_t columns) {
    const auto repeated = Columns::repeat(right, columns);
    for (int v = 0; v < kVectors; ++v) {
      const int rows = kRows - v * kTerms < kTerms ? kRows - v * kTerms : kTerms;
      part[v] = Simd<T>::multiply_add(Columns::spread(left + v * kTerms, rows), repeated, part[v]);
    }
  }
  void add_to(T* sum, int64_t stride) const {
    T values[kVectors * Simd<T>::kWidth];
    for (int v = 0; v < kVectors; ++v) Simd<T>::store(values + v * Simd<T>::kWidth, part[v]);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) sum[r * stride + c] += values[r * kColumns + c];
  }
};

template <class T, int kRows>
struct NarrowOuter<T, kRows, 0> {};

}  // namespace
}  // namespace lockstep::dense::LOCKSTEP_ISA
