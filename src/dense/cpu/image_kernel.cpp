// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "dense/cpu/image_kernel.h"

#include "dense/cpu/narrow_columns.h"
#include "dense/cpu/panels.h"
#include "dense/cpu/pooling.h"

namespace lockstep::dense::LOCKSTEP_ISA {
namespace {

/// Calls work.operator()<kWhole, kColumns>() for the panel's whole vectors (the last may be filled in part) and the
/// width of its narrow columns, or 0.
template <class T, class Work>
inline void with_panel(const Panel<T>& panel, const Work& work) {
  with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
    if constexpr (narrow_width<T>(1) > 0) {
      if (panel.narrow() == 2) return work.template operator()<kVectors - 1, 2>();
      if (panel.narrow() == 4) return work.template operator()<kVectors - 1, 4>();
    }
    work.template operator()<kVectors, 0>();
  });
}

/// Packs a panel's narrow columns: for each vector, kTerms rows of a line.
template <class T, int kColumns>
T* pack_narrow(const T* w, const Rows& rows, int64_t columns, int64_t row_step, int64_t column_step, T* packed) {
  constexpr int terms = Narrow<T, kColumns>::kTerms;
  for (int64_t line = 0; line < rows.lines; ++line)
    for (int64_t i = 0; i < rows.length; i += terms, packed += Simd<T>::kWidth)
      for (int64_t lane = 0; lane < Simd<T>::kWidth; ++lane) {
        const int64_t term = i + lane / kColumns, column = lane % kColumns;
        const bool is_there = term < rows.length && column < columns;
        packed[lane] = is_there ? w[(line * rows.length + term) * row_step + column * column_step] : T(0);
      }
  return packed;
}

template <class T>
void pack(const T* w, const Rows& rows, int64_t n, int64_t row_step, int64_t column_step, T* packed) {
  constexpr int64_t width = Simd<T>::kWidth;
  for (int64_t from = 0; from < n; from += kPanel * width) {
    const Panel<T> panel(n, from);
    with_panel(panel, [&]<int kWhole, int kColumns>() {
      constexpr int64_t columns = kWhole * width;
      const int64_t real = n - from < columns ? n - from : columns;
      const T* source = w + from * column_step;
      for (int64_t i = 0; i < rows.size(); ++i, source += row_step, packed += columns) {
        for (int64_t j = 0; j < real; ++j) packed[j] = source[j * column_step];
        for (int64_t j = real; j < columns; ++j) packed[j] = 0;
      }
      if constexpr (kColumns > 0)
        packed = pack_narrow<T, kColumns>(w + (from + columns) * column_step, rows, panel.last, row_step, column_step,
                                          packed);
    });
  }
}

/// How many terms of a line are added before the narrow columns take the same ones.
template <class T, int kColumns>
inline int64_t terms_at_once(int64_t length) {
  if constexpr (kColumns > 0) return Narrow<T, kColumns>::kTerms;
  return length;
}

/// Where the sums of a product begin and end.
template <class T>
struct Sums {
  const T* start;  // null: at zero
  int64_t n, last;
};

template <class T, int kRows, int kWhole, int kColumns>
inline void multiply_block(const T* base, const int64_t* begins, const Rows& rows, const T* panel, const Sums<T>& sums,
                           T* out) {
  using S = Simd<T>;
  constexpr int64_t width = kWhole * S::kWidth;
  const int64_t terms = terms_at_once<T, kColumns>(rows.length);
  typename S::Vector first[kWhole] = {}, sum[kRows][kWhole];
  if (sums.start != nullptr) load_row<T, kWhole, (kColumns > 0)>(sums.start, sums.last, first);
  NarrowSums<T, kRows, kColumns> narrow;
  const T *row[kRows], *narrow_panel = panel + rows.size() * width;
  for (int r = 0; r < kRows; ++r) {
    row[r] = base + begins[r];
    for (int v = 0; v < kWhole; ++v) sum[r][v] = first[v];
  }
  if constexpr (kColumns > 0) narrow.begin(sums.start == nullptr ? nullptr : sums.start + width, sums.last);
  for (int64_t line = 0; line < rows.lines; ++line) {
    for (int64_t from = 0; from < rows.length; from += terms) {
      const int64_t end = rows.length - from < terms ? rows.length : from + terms;
      for (int64_t i = from; i < end; ++i, panel += width) {
        typename S::Vector weight[kWhole];
        for (int v = 0; v < kWhole; ++v) weight[v] = S::load(panel + v * S::kWidth);
        for (int r = 0; r < kRows; ++r) {
          const typename S::Vector x = S::broadcast(row[r][i]);
          for (int v = 0; v < kWhole; ++v) sum[r][v] = S::multiply_add(x, weight[v], sum[r][v]);
        }
      }
      if constexpr (kColumns > 0) {
        narrow.add(row, from, end - from, narrow_panel);
        narrow_panel += S::kWidth;
      }
    }
    for (int r = 0; r < kRows; ++r) row[r] += rows.line_step;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store_row<T, kWhole>(out + r * sums.n, kColumns > 0 ? S::kWidth : sums.last, sum[r]);
  if constexpr (kColumns > 0) narrow.store(out + width, sums.n, sums.last);
}

template <class T>
void multiply(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, const T* packed,
              const T* start, T* out) {
  constexpr int64_t width = Simd<T>::kWidth;
  for (int64_t column = 0; column < n; column += kPanel * width) {
    const Panel<T> panel(n, column);
    const Sums<T> sums{start == nullptr ? nullptr : start + column, n, panel.last};
    with_panel(panel, [&]<int kWhole, int kColumns>() {
      constexpr int most = rows_with(kWhole + (kColumns > 0));
      const Blocks blocks(count, most);
      for (int64_t block = 0; block < blocks.count; ++block) {
        const int64_t p = blocks.start(block);
        with_number<most>(blocks.start(block + 1) - p, [&]<int kRows>() {
          multiply_block<T, kRows, kWhole, kColumns>(base, begins + p, rows, packed, sums, out + p * n + column);
        });
      }
      packed += rows.size() * kWhole * width;
      if constexpr (kColumns > 0) {
        constexpr int terms = Narrow<T, kColumns>::kTerms;
        packed += rows.lines * ((rows.length + terms - 1) / terms) * width;
      }
    });
  }
}

template <class T, int kRows, int kVectors, int kColumns, bool kFull>
inline void outer_block(const T* base, const int64_t* begins, int64_t count, int64_t n, int64_t last, const T* b,
                        int64_t stride, T* sum) {
  using S = Simd<T>;
  typename S::Vector part[kRows][kVectors];
  NarrowOuter<T, kRows, kColumns> narrow;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) part[r][v] = S::broadcast(0);
  for (int64_t p = 0; p < count; ++p, b += n) {
    const T* left = base + begins[p];
    typename S::Vector right[kVectors];
    load_row<T, kVectors, kFull>(b, last, right);
    for (int r = 0; r < kRows; ++r) {
      const typename S::Vector x = S::broadcast(left[r]);
      for (int v = 0; v < kVectors; ++v) part[r][v] = S::multiply_add(x, right[v], part[r][v]);
    }
    if constexpr (kColumns > 0) narrow.add(left, b + kVectors * S::kWidth, last);
  }
  // Unrolled whole, or the compiler keeps the sums in memory to number them.
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      T* const to = sum + r * stride + v * S::kWidth;
      S::store(to, S::load(to) + part[r][v]);
    }
  if constexpr (kColumns > 0) narrow.add_to(sum + kVectors * S::kWidth, stride);
}

template <class T>
void outer(const T* base, const int64_t* begins, int64_t count, const Rows& rows, int64_t n, const T* b, T* sum) {
  constexpr int64_t width = Simd<T>::kWidth;
  const int64_t stride = padded<T>(n);
  for (int64_t column = 0; column < n; column += kPanel * width) {
    const Panel<T> panel(n, column);
    with_panel(panel, [&]<int kWhole, int kColumns>() {
      constexpr int most = rows_with(kWhole + (kColumns > 0));
      const Blocks blocks(rows.length, most);
      for (int64_t line = 0; line < rows.lines; ++line)
        for (int64_t block = 0; block < blocks.count; ++block) {
          const int64_t from = blocks.start(block);
          const T* left = base + line * rows.line_step + from;
          T* to = sum + (line * rows.length + from) * stride + column;
          with_number<most>(blocks.start(block + 1) - from, [&]<int kRows>() {
            if (kColumns > 0 || panel.last == width)
              outer_block<T, kRows, kWhole, kColumns, true>(left, begins, count, n, panel.last, b + column, stride, to);
            else if constexpr (kColumns == 0)
              outer_block<T, kRows, kWhole, 0, false>(left, begins, count, n, panel.last, b + column, stride, to);
          });
        }
    });
  }
}

template <class T>
void sum_rows(const T* b, int64_t count, int64_t n, T* __restrict sum) {
  for_each_panel<T>(n, [&]<int kVectors>(int64_t column, int64_t last) {
    typename Simd<T>::Vector total[kVectors], row[kVectors];
    for (int v = 0; v < kVectors; ++v) total[v] = Simd<T>::broadcast(0);
    for (int64_t p = 0; p < count; ++p) {
      load_row<T, kVectors>(b + p * n + column, last, row);
      for (int v = 0; v < kVectors; ++v) total[v] += row[v];
    }
    load_row<T, kVectors>(sum + column, last, row);
    for (int v = 0; v < kVectors; ++v) row[v] += total[v];
    store_row<T, kVectors>(sum + column, last, row);
  });
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
constexpr ImageKernels<T> kKernels = {padded<T>,  pack<T>,   multiply<T>,         outer<T>,           sum_rows<T>,
                                      average<T>, spread<T>, average_positive<T>, spread_positive<T>, scatter<T>};

}  // namespace

const ImageKernels<float>& image_kernels_f32() {
  return kKernels<float>;
}
const ImageKernels<double>& image_kernels_f64() {
  return kKernels<double>;
}

}  // namespace lockstep::dense::LOCKSTEP_ISA
