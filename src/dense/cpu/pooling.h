// SPDX-License-Identifier: Apache-2.0
// Averages over windows, and their adjoints. Only for files of lockstep_isa_sources.
#pragma once

#include "dense/cpu/panels.h"

namespace lockstep::dense::LOCKSTEP_ISA {
namespace {

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

/// For each value of a vector whether it is positive, in a byte: all bits or none.
template <class T>
struct Signs {
  using Vector = typename Simd<T>::Vector;
  using Bits = decltype(Vector{} <= Vector{});
  typedef int8_t Bytes __attribute__((vector_size(Simd<T>::kWidth)));

  /// Zeros in place of values that are not positive. What is no number is taken for positive, as libtorch's relu does.
  static inline Vector cut(Vector values, int8_t* signs) {
    const Bits keep = ~(values <= Vector{});
    const Bytes bytes = __builtin_convertvector(keep, Bytes);
    __builtin_memcpy(signs, &bytes, sizeof bytes);
    return (Vector)((Bits)values & keep);
  }
  static inline Vector cut_as(Vector values, const int8_t* signs) {
    Bytes bytes;
    __builtin_memcpy(&bytes, signs, sizeof bytes);
    return (Vector)((Bits)values & __builtin_convertvector(bytes, Bits));
  }
};

template <class T>
void average_positive(const T* base, const int64_t* begins, int64_t count, const Rows& points, int64_t n, T scale,
                      int8_t* signs, T* out) {
  using S = Simd<T>;
  const int64_t stride = padded<T>(n);
  for (int64_t column = 0; column < n; column += kPanel * S::kWidth) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      typename S::Vector total[kVectors], row[kVectors];
      for (int64_t p = 0; p < count; ++p) {
        for (int v = 0; v < kVectors; ++v) total[v] = S::broadcast(0);
        for (int64_t line = 0; line < points.lines; ++line)
          for (int64_t tap = 0; tap < points.length; ++tap) {
            const int64_t point = begins[p] + line * points.line_step + tap;
            load_row<T, kVectors>(base + point * n + column, panel.last, row);
            for (int v = 0; v < kVectors; ++v)
              total[v] += Signs<T>::cut(row[v], signs + point * stride + column + v * S::kWidth);
          }
        for (int v = 0; v < kVectors; ++v) total[v] *= S::broadcast(scale);
        store_row<T, kVectors>(out + p * n + column, panel.last, total);
      }
    });
  }
}

template <class T>
void spread_positive(const T* b, const int64_t* begins, int64_t count, const Rows& points, int64_t n, T scale,
                     const int8_t* signs, T* base) {
  using S = Simd<T>;
  const int64_t stride = padded<T>(n);
  for (int64_t column = 0; column < n; column += kPanel * S::kWidth) {
    const Panel<T> panel(n, column);
    with_number<kPanel>(panel.vectors, [&]<int kVectors>() {
      typename S::Vector value[kVectors], row[kVectors];
      for (int64_t p = 0; p < count; ++p) {
        load_row<T, kVectors>(b + p * n + column, panel.last, value);
        for (int v = 0; v < kVectors; ++v) value[v] *= S::broadcast(scale);
        for (int64_t line = 0; line < points.lines; ++line)
          for (int64_t tap = 0; tap < points.length; ++tap) {
            const int64_t point = begins[p] + line * points.line_step + tap;
            for (int v = 0; v < kVectors; ++v)
              row[v] = Signs<T>::cut_as(value[v], signs + point * stride + column + v * S::kWidth);
            store_row<T, kVectors>(base + point * n + column, panel.last, row);
          }
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::dense::LOCKSTEP_ISA
