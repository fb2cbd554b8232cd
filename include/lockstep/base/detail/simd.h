// SPDX-License-Identifier: Apache-2.0
// Vectors of the widest kind that the file including this is compiled for. Only for files of lockstep_isa_sources:
// all is file-local, so that no copy made for one CPU is called on another.
#pragma once

#include <cstdint>

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
  using Sum = T;
  static constexpr int kWidth = kVectorBytes / sizeof(T);
  typedef T Vector __attribute__((vector_size(kVectorBytes)));

  static inline Vector load(const T* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  static inline void store(T* to, Vector v) { __builtin_memcpy(to, &v, sizeof v); }
  /// The first `count` elements, the others zero; at most a vector.
  static inline Vector load_part(const T* from, int64_t count) {
    Vector v{};
    for (int64_t i = 0; i < count; ++i) v[i] = from[i];
    return v;
  }
  static inline void store_part(T* to, Vector v, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = v[i];
  }
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
template <>
inline Simd<float>::Vector Simd<float>::load_part(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), from);
}
template <>
inline void Simd<float>::store_part(float* to, Vector v, int64_t count) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1), v);
}
#elif defined(__AVX2__)
alignas(32) constexpr int kPartMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
template <>
inline Simd<float>::Vector Simd<float>::load_part(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kPartMask + 8 - count)));
}
template <>
inline void Simd<float>::store_part(float* to, Vector v, int64_t count) {
  _mm256_maskstore_ps(to, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kPartMask + 8 - count)), v);
}
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
