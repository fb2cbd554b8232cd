// SPDX-License-Identifier: Apache-2.0
// Columns of a matrix as panels of a few vectors, and rows of them in registers. Only for files of
// lockstep_isa_sources.
#pragma once

#include "dense/cpu/narrow_columns.h"

namespace lockstep::dense::LOCKSTEP_ISA {
namespace {

// A block of sums, rows times vectors, stays in registers: enough of them to hide how long an addition takes, with room
// for one row of weights and a broadcast value. Columns are cut into panels of a few vectors.
#if defined(__AVX512F__)
constexpr int kPanel = 4;
constexpr int kSums = 24;
#elif defined(__AVX2__)
constexpr int kPanel = 3;
constexpr int kSums = 12;
#else
constexpr int kPanel = 2;
constexpr int kSums = 12;
#endif
constexpr int kMostRows = 12;

constexpr int rows_with(int vectors) {
  return kSums / vectors < kMostRows ? kSums / vectors : kMostRows;
}

/// The panel of n columns that begins at one of them.
template <class T>
struct Panel {
  static constexpr int64_t kWidth = Simd<T>::kWidth;
  int vectors;
  int64_t last;  // columns in the last vector
  bool is_only;

  Panel(int64_t n, int64_t column) {
    const int64_t rest = n - column, whole = (rest + kWidth - 1) / kWidth;
    vectors = static_cast<int>(whole < kPanel ? whole : kPanel);
    last = rest < vectors * kWidth ? rest - (vectors - 1) * kWidth : kWidth;
    is_only = n <= kPanel * kWidth;
  }

  /// The width of the last vector's columns where it is computed with several terms at once: where it is one of few.
  int narrow() const { return is_only ? narrow_width<T>(last) : 0; }
};

/// `total` cut into the fewest blocks of at most `most`, as even as can be: block b starts at b's share.
struct Blocks {
  int64_t count, total;
  Blocks(int64_t rows, int64_t most) : count((rows + most - 1) / most), total(rows) {}
  int64_t start(int64_t block) const { return block * total / count; }
};

/// Calls work.operator()<number>() for a number from 1 to kMost.
template <int kMost, class Work>
inline void with_number(int64_t number, const Work& work) {
  if constexpr (kMost > 1) {
    if (number < kMost) return with_number<kMost - 1>(number, work);
  }
  work.template operator()<kMost>();
}

/// Calls work.operator()<kVectors>(column, last) for each panel of n columns.
template <class T, class Work>
inline void for_each_panel(int64_t n, const Work& work) {
  for (int64_t column = 0; column < n; column += kPanel * Simd<T>::kWidth) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() { work.template operator()<kVectors>(column, panel.last); });
  }
}

template <class T, int kVectors, bool kWhole = false>
inline void load_row(const T* from, int64_t last, typename Simd<T>::Vector* row) {
  constexpr int whole = kWhole ? kVectors : kVectors - 1;
  for (int v = 0; v < whole; ++v) row[v] = Simd<T>::load(from + v * Simd<T>::kWidth);
  if constexpr (!kWhole && kVectors > 0) row[whole] = Simd<T>::load_part(from + whole * Simd<T>::kWidth, last);
}

template <class T, int kVectors>
inline void store_row(T* to, int64_t last, const typename Simd<T>::Vector* row) {
  constexpr int width = Simd<T>::kWidth;
  for (int v = 0; v + 1 < kVectors; ++v) Simd<T>::store(to + v * width, row[v]);
  if (kVectors == 0) return;
  if (last == width)
    Simd<T>::store(to + (kVectors - 1) * width, row[kVectors - 1]);
  else
    Simd<T>::store_part(to + (kVectors - 1) * width, row[kVectors - 1], last);
}

template <class T>
int64_t padded(int64_t n) {
  constexpr int64_t width = Simd<T>::kWidth;
  return (n + width - 1) / width * width;
}

}  // namespace
}  // namespace lockstep::dense::LOCKSTEP_ISA
