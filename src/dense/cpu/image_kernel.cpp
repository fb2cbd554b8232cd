// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "dense/cpu/image_kernel.h"

#include "lockstep/base/detail/simd.h"

namespace lockstep::dense::LOCKSTEP_ISA {
namespace {

using lockstep::LOCKSTEP_ISA::Simd;

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

  Panel(int64_t n, int64_t column) {
    const int64_t rest = n - column, whole = (rest + kWidth - 1) / kWidth;
    vectors = static_cast<int>(whole < kPanel ? whole : kPanel);
    last = rest < vectors * kWidth ? rest - (vectors - 1) * kWidth : kWidth;
  }
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

template <class T, int kVectors, bool kWhole = false>
inline void load_row(const T* from, int64_t last, typename Simd<T>::Vector* row) {
  constexpr int whole = kWhole ? kVectors : kVectors - 1;
  for (int v = 0; v < whole; ++v) row[v] = Simd<T>::load(from + v * Simd<T>::kWidth);
  if constexpr (!kWhole) row[whole] = Simd<T>::load_part(from + whole * Simd<T>::kWidth, last);
}

template <class T, int kVectors>
inline void store_row(T* to, int64_t last, const typename Simd<T>::Vector* row) {
  constexpr int width = Simd<T>::kWidth;
  for (int v = 0; v + 1 < kVectors; ++v) Simd<T>::store(to + v * width, row[v]);
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

template <class T>
void pack(const T* w, int64_t k, int64_t n, int64_t row_step, int64_t column_step, T* packed) {
  constexpr int64_t width = Simd<T>::kWidth;
  for (int64_t from = 0; from < n; from += kPanel * width) {
    const int64_t columns = Panel<T>(n, from).vectors * width;
    const int64_t real = n - from < columns ? n - from : columns;
    for (int64_t i = 0; i < k; ++i, packed += columns) {
      const T* source = w + i * row_step + from * column_step;
      for (int64_t j = 0; j < real; ++j) packed[j] = source[j * column_step];
      for (int64_t j = real; j < columns; ++j) packed[j] = 0;
    }
  }
}

template <class T, int kRows, int kVectors>
inline void multiply_block(const T* base, const int64_t* begins, const Rows& rows, const T* panel,
                           const typename Simd<T>::Vector* start, int64_t n, int64_t last, T* out) {
  using S = Simd<T>;
  typename S::Vector sum[kRows][kVectors];
  const T* row[kRows];
  for (int r = 0; r < kRows; ++r) {
    row[r] = base + begins[r];
    for (int v = 0; v < kVectors; ++v) sum[r][v] = start[v];
  }
  for (int64_t line = 0; line < rows.lines; ++line) {
    for (int64_t i = 0; i < rows.length; ++i, panel += kVectors * S::kWidth) {
      typename S::Vector weight[kVectors];
      for (int v = 0; v < kVectors; ++v) weight[v] = S::load(panel + v * S::kWidth);
      for (int r = 0; r < kRows; ++r) {
        const typename S::Vector x = S::broadcast(row[r][i]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = S::multiply_add(x, weight[v], sum[r][v]);
      }
    }
    for (int r = 0; r < kRows; ++r) row[r] += rows.line_step;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store_row<T, kVectors>(out + r * n, last, sum[r]);
}

template <class T>
void multiply(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, const T* packed,
              const T* start, T* out) {
  constexpr int64_t width = Simd<T>::kWidth;
  for (int64_t column = 0; column < n; column += kPanel * width) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      typename Simd<T>::Vector first[kVectors];
      for (int v = 0; v < kVectors; ++v) first[v] = Simd<T>::broadcast(0);
      if (start != nullptr) load_row<T, kVectors>(start + column, panel.last, first);
      constexpr int most = rows_with(kVectors);
      const Blocks blocks(count, most);
      for (int64_t block = 0; block < blocks.count; ++block) {
        const int64_t p = blocks.start(block);
        with_number<most>(blocks.start(block + 1) - p, [&]<int kRows>() {
          multiply_block<T, kRows, kVectors>(base, begins + p, rows, packed, first, n, panel.last,
                                             out + p * n + column);
        });
      }
      packed += rows.size() * kVectors * width;
    });
  }
}

template <class T, int kRows, int kVectors, bool kWhole>
inline void outer_block(const T* base, const int64_t* begins, int64_t count, int64_t n, int64_t last, const T* b,
                        int64_t stride, T* sum) {
  using S = Simd<T>;
  typename S::Vector part[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) part[r][v] = S::broadcast(0);
  for (int64_t p = 0; p < count; ++p, b += n) {
    const T* left = base + begins[p];
    typename S::Vector right[kVectors];
    load_row<T, kVectors, kWhole>(b, last, right);
    for (int r = 0; r < kRows; ++r) {
      const typename S::Vector x = S::broadcast(left[r]);
      for (int v = 0; v < kVectors; ++v) part[r][v] = S::multiply_add(x, right[v], part[r][v]);
    }
  }
  // Unrolled whole, or the compiler keeps the sums in memory to number them.
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, sum += stride)
    for (int v = 0; v < kVectors; ++v) S::store(sum + v * S::kWidth, S::load(sum + v * S::kWidth) + part[r][v]);
}

template <class T>
void outer(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, const T* b, T* sum) {
  constexpr int64_t width = Simd<T>::kWidth;
  const int64_t stride = padded<T>(n);
  for (int64_t column = 0; column < n; column += kPanel * width) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      constexpr int most = rows_with(kVectors);
      const Blocks blocks(rows.length, most);
      for (int64_t line = 0; line < rows.lines; ++line)
        for (int64_t block = 0; block < blocks.count; ++block) {
          const int64_t from = blocks.start(block);
          const T* left = base + line * rows.line_step + from;
          T* to = sum + (line * rows.length + from) * stride + column;
          with_number<most>(blocks.start(block + 1) - from, [&]<int kRows>() {
            if (panel.last == width)
              outer_block<T, kRows, kVectors, true>(left, begins, count, n, panel.last, b + column, stride, to);
            else
              outer_block<T, kRows, kVectors, false>(left, begins, count, n, panel.last, b + column, stride, to);
          });
        }
    });
  }
}

template <class T>
void sum_rows(const T* b, int64_t count, int64_t n, T* __restrict sum) {
  constexpr int64_t width = Simd<T>::kWidth;
  for (int64_t column = 0; column < n; column += kPanel * width) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      typename Simd<T>::Vector total[kVectors], row[kVectors];
      for (int v = 0; v < kVectors; ++v) total[v] = Simd<T>::broadcast(0);
      for (int64_t p = 0; p < count; ++p) {
        load_row<T, kVectors>(b + p * n + column, panel.last, row);
        for (int v = 0; v < kVectors; ++v) total[v] += row[v];
      }
      load_row<T, kVectors>(sum + column, panel.last, row);
      for (int v = 0; v < kVectors; ++v) row[v] += total[v];
      store_row<T, kVectors>(sum + column, panel.last, row);
    });
  }
}

template <class T>
void average(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, T scale, T* out) {
  using S = Simd<T>;
  for (int64_t column = 0; column < n; column += kPanel * S::kWidth) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      typename S::Vector total[kVectors], row[kVectors];
      for (int64_t p = 0; p < count; ++p) {
        for (int v = 0; v < kVectors; ++v) total[v] = S::broadcast(0);
        for (int64_t line = 0; line < rows.lines; ++line) {
          const T* from = base + begins[p] + line * rows.line_step + column;
          for (const T* const end = from + rows.length; from < end; from += n) {
            load_row<T, kVectors>(from, panel.last, row);
            for (int v = 0; v < kVectors; ++v) total[v] += row[v];
          }
        }
        for (int v = 0; v < kVectors; ++v) total[v] *= S::broadcast(scale);
        store_row<T, kVectors>(out + p * n + column, panel.last, total);
      }
    });
  }
}

template <class T>
void spread(const T* b, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, T scale, T* base) {
  using S = Simd<T>;
  for (int64_t column = 0; column < n; column += kPanel * S::kWidth) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      typename S::Vector value[kVectors], row[kVectors];
      for (int64_t p = 0; p < count; ++p) {
        load_row<T, kVectors>(b + p * n + column, panel.last, value);
        for (int v = 0; v < kVectors; ++v) value[v] *= S::broadcast(scale);
        for (int64_t line = 0; line < rows.lines; ++line) {
          T* to = base + begins[p] + line * rows.line_step + column;
          for (const T* const end = to + rows.length; to < end; to += n) {
            load_row<T, kVectors>(to, panel.last, row);
            for (int v = 0; v < kVectors; ++v) row[v] += value[v];
            store_row<T, kVectors>(to, panel.last, row);
          }
        }
      }
    });
  }
}

template <class T>
void scatter(const T* values, const int64_t* begins, int64_t count, const Rows& rows, T* base) {
  for (int64_t p = 0; p < count; ++p)
    for (int64_t line = 0; line < rows.lines; ++line, values += rows.length) {
      T* __restrict to = base + begins[p] + line * rows.line_step;
      for (int64_t i = 0; i < rows.length; ++i) to[i] += values[i];
    }
}

template <class T>
constexpr ImageKernels<T> kKernels = {padded<T>,   pack<T>,    multiply<T>, outer<T>,
                                      sum_rows<T>, average<T>, spread<T>,   scatter<T>};

}  // namespace

const ImageKernels<float>& image_kernels_f32() {
  return kKernels<float>;
}
const ImageKernels<double>& image_kernels_f64() {
  return kKernels<double>;
}

}  // namespace lockstep::dense::LOCKSTEP_ISA
