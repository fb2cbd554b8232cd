// SPDX-License-Identifier: Apache-2.0
// Averages over windows, and their adjoints. Only for files of lockstep_isa_sources.
#pragma once

#include "dense/cpu/panels.h"

namespace lockstep::dense::LOCKSTEP_ISA {
namespace {

/// What the mean over a window multiplies by.
template <class T>
inline typename Simd<T>::Vector scale_of(const Windows& windows) {
  return Simd<T>::broadcast(T(1) / static_cast<T>(windows.points.size()));
}

/// Calls work(point) for the points of a window. By value: work writes, and what lies in memory would be read again.
template <class Work>
inline void for_each_point(int64_t begin, Rows points, const Work& work) {
  for (int64_t line = 0; line < points.lines; ++line, begin += points.line_step)
    for (int64_t point = begin; point < begin + points.length; ++point) work(point);
}

/// Means of cut(values, point, column), a vector each.
template <class T, class Cut>
inline void average_of(const T* base, const Windows& windows, int64_t n, T* out, const Cut& cut) {
  using S = Simd<T>;
  const typename S::Vector scale = scale_of<T>(windows);
  for_each_panel<T>(n, [&]<int kVectors>(int64_t column, int64_t last) {
    typename S::Vector total[kVectors], row[kVectors];
    for (int64_t w = 0; w < windows.count; ++w) {
      for (int v = 0; v < kVectors; ++v) total[v] = S::broadcast(0);
      for_each_point(windows.begins[w], windows.points, [&](int64_t point) {
        load_row<T, kVectors>(base + point * n + column, last, row);
        for (int v = 0; v < kVectors; ++v) total[v] += cut(row[v], point, column + v * S::kWidth);
      });
      for (int v = 0; v < kVectors; ++v) total[v] *= scale;
      store_row<T, kVectors>(out + w * n + column, last, total);
    }
  });
}

/// Calls put.operator()<kVectors>(values, point, column, last) for each panel of each point: its part of b.
template <class T, class Put>
inline void spread_of(const T* b, const Windows& windows, int64_t n, const Put& put) {
  using S = Simd<T>;
  const typename S::Vector scale = scale_of<T>(windows);
  for_each_panel<T>(n, [&]<int kVectors>(int64_t column, int64_t last) {
    typename S::Vector values[kVectors];
    for (int64_t w = 0; w < windows.count; ++w) {
      load_row<T, kVectors>(b + w * n + column, last, values);
      for (int v = 0; v < kVectors; ++v) values[v] *= scale;
      for_each_point(windows.begins[w], windows.points,
                     [&](int64_t point) { put.template operator()<kVectors>(values, point, column, last); });
    }
  });
}

template <class T>
void average(const T* base, const Windows& windows, int64_t n, T* out) {
  average_of(base, windows, n, out, [](auto values, int64_t, int64_t) { return values; });
}

template <class T>
void spread(const T* b, const Windows& windows, int64_t n, T* base) {
  using Vector = typename Simd<T>::Vector;
  spread_of(b, windows, n, [&]<int kVectors>(const Vector* values, int64_t point, int64_t column, int64_t last) {
    T* const to = base + point * n + column;
    Vector row[kVectors];
    load_row<T, kVectors>(to, last, row);
    for (int v = 0; v < kVectors; ++v) row[v] += values[v];
    store_row<T, kVectors>(to, last, row);
  });
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
void average_positive(const T* base, const Windows& windows, int64_t n, int8_t* signs, T* out) {
  const int64_t stride = padded<T>(n);
  average_of(base, windows, n, out, [&](auto values, int64_t point, int64_t column) {
    return Signs<T>::cut(values, signs + point * stride + column);
  });
}

template <class T>
void spread_positive(const T* b, const Windows& windows, int64_t n, const int8_t* signs, T* base) {
  using Vector = typename Simd<T>::Vector;
  const int64_t stride = padded<T>(n);
  spread_of(b, windows, n, [&]<int kVectors>(const Vector* values, int64_t point, int64_t column, int64_t last) {
    Vector row[kVectors];
    for (int v = 0; v < kVectors; ++v)
      row[v] = Signs<T>::cut_as(values[v], signs + point * stride + column + v * Simd<T>::kWidth);
    store_row<T, kVectors>(base + point * n + column, last, row);
  });
}

}  // namespace
}  // namespace lockstep::dense::LOCKSTEP_ISA
