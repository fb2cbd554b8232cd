// SPDX-License-Identifier: Apache-2.0
// Products of small matrices as CUDA's wmma gives them, on the CPU. There a warp holds a matrix between its threads;
// here each of them holds all of it and does all of the work, so that threads can run one after the other. What CUDA
// demands of addresses and leading dimensions is checked.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

namespace precision {
struct tf32;
}

template <class Use, int m, int n, int k>
// NOLINTNEXTLINE(bugprone-branch-clone)
inline constexpr int kLines = std::is_same_v<Use, matrix_b> ? k : m;
template <class Use, int m, int n, int k>
// NOLINTNEXTLINE(bugprone-branch-clone)
inline constexpr int kColumns = std::is_same_v<Use, matrix_a> ? k : n;

template <class Use, int m, int n, int k, class Element, class Layout = void>
struct fragment {
  static constexpr int lines = kLines<Use, m, n, k>, columns = kColumns<Use, m, n, k>;
  static constexpr int num_elements = lines * columns;
  float x[num_elements];  // 16-bit values and TF32 are float32 values too
};

template <class Fragment>
void fill_fragment(Fragment& fragment, float value) {
  for (float& x : fragment.x) x = value;
}

template <class T>
void check_place(const T* data, unsigned ld) {
  TORCH_CHECK(reinterpret_cast<uintptr_t>(data) % 32 == 0, "a fragment is not at a multiple of 32 bytes");
  TORCH_CHECK(ld * sizeof(T) % 16 == 0, "a leading dimension is no multiple of 16 bytes");
}

template <class Use, int m, int n, int k, class Element, class Layout, class T>
void load_matrix_sync(fragment<Use, m, n, k, Element, Layout>& to, const T* data, unsigned ld) {
  check_place(data, ld);
  for (int i = 0; i < to.lines; ++i)
    for (int j = 0; j < to.columns; ++j)
      to.x[i * to.columns + j] =
          static_cast<float>(std::is_same_v<Layout, row_major> ? data[i * ld + j] : data[j * ld + i]);
}

template <class Fragment>
void store_matrix_sync(float* data, const Fragment& from, unsigned ld, layout_t layout) {
  check_place(data, ld);
  for (int i = 0; i < from.lines; ++i)
    for (int j = 0; j < from.columns; ++j)
      data[layout == mem_row_major ? i * ld + j : j * ld + i] = from.x[i * from.columns + j];
}

template <class D, class A, class B, class C>
void mma_sync(D& d, const A& a, const B& b, const C& c) {
  for (int i = 0; i < d.lines; ++i)
    for (int j = 0; j < d.columns; ++j) {
      float sum = c.x[i * d.columns + j];
      for (int l = 0; l < a.columns; ++l) sum += a.x[i * a.columns + l] * b.x[l * b.columns + j];
      d.x[i * d.columns + j] = sum;
    }
}

/// The nearest value of 10 bits of mantissa.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
inline float __float_to_tf32(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x1000u) & ~0x1fffu;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

}  // namespace nvcuda::wmma
