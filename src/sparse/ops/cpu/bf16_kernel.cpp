// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX512-BF16 alone: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "sparse/ops/cpu/bf16_kernel.h"

#include "lockstep/base/detail/simd.h"

// A sum takes the products of two neighbours at once. Where a row meets weights, these are two channels; where two rows
// meet (the weight gradient), they are the same channel of two pairs of the map, which are packed side by side.
namespace lockstep::LOCKSTEP_ISA {
namespace {

struct Neighbours {
  uint16_t even, odd;
};

template <>
struct Simd<Neighbours> {
  using Sum = float;
  static constexpr int kWidth = kVectorBytes / sizeof(Neighbours);
  using Vector = __m512i;

  static inline Vector load(const Neighbours* from) { return _mm512_loadu_si512(from); }
  static inline Vector broadcast(const Neighbours& x) {
    int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return _mm512_set1_epi32(bits);
  }
  static inline Simd<Sum>::Vector multiply_add(Vector a, Vector b, Simd<Sum>::Vector c) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  }
};

}  // namespace
}  // namespace lockstep::LOCKSTEP_ISA

#include "sparse/ops/cpu/products.h"

namespace lockstep::sparse::LOCKSTEP_ISA {
namespace {

using lockstep::LOCKSTEP_ISA::Neighbours;

constexpr int64_t kWidth = Simd<Neighbours>::kWidth;

/// The first `count` of at most 16 values, the others zero.
inline __m256i load_part(const uint16_t* from, int64_t count) {
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>(count >= kWidth ? 0xffff : (1U << count) - 1), from);
}

/// Values of two rows side by side: even[0], odd[0], even[1], ...
inline __m512i beside(__m256i even, __m256i odd) {
  // The unmasked forms have GCC 12 warn of a value without a beginning.
  constexpr __mmask16 kAll = 0xffff;
  const __m512i high = _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, odd), 16);
  return _mm512_or_si512(_mm512_maskz_cvtepu16_epi32(kAll, even), high);
}

/// `columns` values of two rows side by side, zeros behind the first `real`. No odd row is one of zeros.
inline void pack_beside(const uint16_t* even, const uint16_t* odd, int64_t real, int64_t columns, Neighbours* to) {
  for (int64_t j = 0; j < columns; j += kWidth) {
    const int64_t left = real > j ? real - j : 0;
    const __m256i other = odd == nullptr ? _mm256_setzero_si256() : load_part(odd + j, left);
    _mm512_storeu_si512(to + j, beside(load_part(even + j, left), other));
  }
}

/// Two rows of weights at a time.
void pack_rows(const uint16_t* w, int64_t k, int64_t n, int64_t row_stride, Neighbours* packed) {
  for (int64_t i = 0; i < k; ++i, w += 2 * row_stride)
    for (int64_t from = 0; from < n; from += kPanelVectors * kWidth) {
      const int64_t columns = panel_width<Neighbours>(n - from);
      pack_beside(w + from, w + row_stride + from, n - from, columns, packed + from * k + i * columns);
    }
}

void pack_weights(const uint16_t* w, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
                  uint16_t* packed) {
  auto* const to = reinterpret_cast<Neighbours*>(packed);
  if (column_stride == 1)
    pack_rows(w, k / 2, n, row_stride, to);
  else
    pack_columns(k / 2, n, to, [=](int64_t column, int64_t i) {
      Neighbours value;
      __builtin_memcpy(&value, w + column * column_stride + 2 * i, sizeof value);
      return value;
    });
}

void multiply_rows(const uint16_t* const* rows, float* const* sums, int64_t count, int64_t k, int64_t n,
                   const uint16_t* packed) {
  multiply(reinterpret_cast<const Neighbours* const*>(rows), sums, count, k / 2, n,
           reinterpret_cast<const Neighbours*>(packed));
}

/// Of so many rows; the last may have no second row.
int64_t pairs_of(int64_t count) {
  return (count + 1) / 2;
}

/// Packs the columns of each block of a's rows, two rows side by side.
void pack_blocks(const uint16_t* const* a, int64_t count, const Blocks& blocks, Neighbours* packed) {
  for (int64_t block = 0; block < blocks.count; ++block) {
    const int64_t from = blocks.start(block), rows = blocks.start(block + 1) - from;
    const int64_t left = blocks.total - from;
    Neighbours* to = packed + block * block_size(pairs_of(count));
    for (int64_t p = 0; p < count; p += 2, to += rows) {
      const __m256i odd = p + 1 < count ? load_part(a[p + 1] + from, left) : _mm256_setzero_si256();
      _mm512_mask_storeu_epi32(to, (1U << kCopied) - 1, beside(load_part(a[p] + from, left), odd));
    }
  }
}

/// In values of 16 bits.
int64_t outer_scratch(int64_t count, int64_t m) {
  return 2 * outer_scratch<Neighbours>(pairs_of(count), m);
}

void outer(const uint16_t* const* a, const uint16_t* const* b, int64_t count, int64_t m, int64_t n, float* sum,
           uint16_t* scratch) {
  const int64_t stride = padded<Neighbours>(n), pairs = pairs_of(count);
  const Blocks blocks(m);
  auto* const left = reinterpret_cast<Neighbours*>(scratch);
  Neighbours* const right = left + blocks.count * block_size(pairs);
  pack_blocks(a, count, blocks, left);
  for (int64_t column = 0; column < n; column += kPanelVectors * kWidth) {
    const int64_t columns = panel_width<Neighbours>(n - column);
    for (int64_t p = 0; p < count; p += 2)
      pack_beside(b[p] + column, p + 1 < count ? b[p + 1] + column : nullptr, n - column, columns,
                  right + p / 2 * columns);
    outer_panel(blocks, left, right, columns, pairs, sum + column, stride);
  }
}

void store(const float* sums, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const auto part = static_cast<__mmask16>(n - i >= kWidth ? 0xffff : (1U << (n - i)) - 1);
    _mm256_mask_storeu_epi16(to + i, part, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(part, sums + i)));
  }
}

constexpr MatrixKernels<uint16_t, float> kKernels = {padded<Neighbours>, pack_weights, multiply_rows,
                                                     outer_scratch,      outer,        store};

}  // namespace

const MatrixKernels<uint16_t, float>& kernels() {
  return kKernels;
}

}  // namespace lockstep::sparse::LOCKSTEP_ISA
