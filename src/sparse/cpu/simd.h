// SPDX-License-Identifier: Apache-2.0
// Vectors of the widest kind that the file including this is compiled for. Only for files of lockstep_isa_sources:
// all is file-local, so that no copy made for one CPU is called on another.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::LOCKSTEP_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kBlockRows = 8;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kBlockRows = 6;
#else
constexpr int kVectorBytes = 16;
constexpr int kBlockRows = 6;
#endif

template <class T>
struct Simd {
  static constexpr int kWidth = kVectorBytes / sizeof(T);
  typedef T Vector __attribute__((vector_size(kVectorBytes)));

  static inline Vector load(const T* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  static inline void store(T* to, Vector v) { __builtin_memcpy(to, &v, sizeof v); }
  static inline Vector broadcast(T x);
  /// a * b + c, fused where the level has it.
  static inline Vector multiply_add(Vector a, Vector b, Vector c);
};

#if defined(__AVX512F__)
template <>
inline Simd<float>::Vector Simd<float>::broadcast(float x) {
  return _mm512_set1_ps(x);
}
template <>
inline Simd<double>::Vector Simd<double>::broadcast(double x) {
  return _mm512_set1_pd(x);
}
template <>
inline Simd<float>::Vector Simd<float>::multiply_add(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
template <>
inline Simd<double>::Vector Simd<double>::multiply_add(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_pd(a, b, c);
}
#elif defined(__AVX2__)
template <>
inline Simd<float>::Vector Simd<float>::broadcast(float x) {
  return _mm256_set1_ps(x);
}
template <>
inline Simd<double>::Vector Simd<double>::broadcast(double x) {
  return _mm256_set1_pd(x);
}
template <>
inline Simd<float>::Vector Simd<float>::multiply_add(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
template <>
inline Simd<double>::Vector Simd<double>::multiply_add(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_pd(a, b, c);
}
#else
template <>
inline Simd<float>::Vector Simd<float>::broadcast(float x) {
  return Vector{x, x, x, x};
}
template <>
inline Simd<double>::Vector Simd<double>::broadcast(double x) {
  return Vector{x, x};
}
template <>
inline Simd<float>::Vector Simd<float>::multiply_add(Vector a, Vector b, Vector c) {
  return a * b + c;
}
template <>
inline Simd<double>::Vector Simd<double>::multiply_add(Vector a, Vector b, Vector c) {
  return a * b + c;
}
#endif

}  // namespace
}  // namespace lockstep::LOCKSTEP_ISA
