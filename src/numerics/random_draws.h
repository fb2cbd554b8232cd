// SPDX-License-Identifier: Apache-2.0
// What one random number is, shared by the scalar functions, the CPU fills and the CUDA fills.
//
// Normal numbers must have the same bits everywhere, so nothing here calls a libm, whose log and cos differ in the
// last bit from platform to platform. The inverse of the normal distribution function is a ratio of polynomials
// (Wichura, "Algorithm AS 241", 1988, about 16 digits) of sqrt(-log p), and the logarithm is a series of our own:
// only + - * / and sqrt, which IEEE 754 rounds in one way. A multiply and an add must not be fused: on CUDA the
// operations are spelled as intrinsics that never are, on CPU the files that include this have -ffp-contract=off.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <variant>

#include "lockstep/numerics/permutation.h"
#include "lockstep/numerics/philox.h"

namespace lockstep::detail {

#if defined(__CUDA_ARCH__)
LOCKSTEP_HOST_DEVICE inline double add(double a, double b) {
  return __dadd_rn(a, b);
}
LOCKSTEP_HOST_DEVICE inline double multiply(double a, double b) {
  return __dmul_rn(a, b);
}
LOCKSTEP_HOST_DEVICE inline double divide(double a, double b) {
  return __ddiv_rn(a, b);
}
LOCKSTEP_HOST_DEVICE inline double square_root(double a) {
  return __dsqrt_rn(a);
}
#else
LOCKSTEP_HOST_DEVICE inline double add(double a, double b) {
  return a + b;
}
LOCKSTEP_HOST_DEVICE inline double multiply(double a, double b) {
  return a * b;
}
LOCKSTEP_HOST_DEVICE inline double divide(double a, double b) {
  return a / b;
}
LOCKSTEP_HOST_DEVICE inline double square_root(double a) {
  return std::sqrt(a);
}
#endif

// Horner's rule, highest power first.
template <class... Lower>
LOCKSTEP_HOST_DEVICE double polynomial(double x, double highest, Lower... lower) {
  double sum = highest;
  ((sum = add(multiply(sum, x), lower)), ...);
  return sum;
}

// log x of a positive normal number: x = m 2^e with m in [sqrt 1/2, sqrt 2), and log m = 2 atanh((m-1) / (m+1)).
LOCKSTEP_HOST_DEVICE inline double natural_log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000F'FFFF'FFFF'FFFFu) | 0x3FF0'0000'0000'0000u;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m = multiply(m, 0.5);
    ++exponent;
  }
  const double s = divide(add(m, -1.0), add(m, 1.0)), s2 = multiply(s, s);
  const double series = polynomial(s2, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7,
                                   2.0 / 5, 2.0 / 3, 2.0);
  return add(multiply(exponent, 0.6931471805599453), multiply(s, series));
}

// The x with P(normal < x) = p, for 0 < p < 1.
LOCKSTEP_HOST_DEVICE inline double inverse_normal(double p) {
  const double q = add(p, -0.5);
  if (q >= -0.425 && q <= 0.425) {
    const double r = add(0.180625, -multiply(q, q));
    return divide(multiply(q, polynomial(r, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
                                         4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
                                         1.3314166789178437745e2, 3.3871328727963666080)),
                  polynomial(r, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
                             2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
                             4.2313330701600911252e1, 1.0));
  }
  const double tail = q < 0 ? p : add(1.0, -p);
  double r = square_root(-natural_log(tail));
  double x;
  if (r <= 5) {
    r = add(r, -1.6);
    x = divide(polynomial(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                          1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
                          4.63033784615654529590, 1.42343711074968357734),
               polynomial(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                          1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
                          2.05319162663775882187, 1.0));
  } else {
    r = add(r, -5.0);
    x = divide(polynomial(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                          2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
                          5.46378491116411436990, 6.65790464350110377720),
               polynomial(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                          7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                          5.99832206555887937690e-1, 1.0));
  }
  return q < 0 ? -x : x;
}

// A draw fills the lanes of one block: `lanes<T>` numbers of type T, of which number k of block b is number
// b * lanes + k of the sequence. 64-bit types take two words a number, the others one.
struct UniformDraw {
  RandomKey key;
  template <class T>
  static constexpr int lanes = sizeof(T) == 8 ? 2 : 4;

  template <class T>
  LOCKSTEP_HOST_DEVICE void operator()(uint64_t index, T* out) const {
    const PhiloxBlock block = key.block(index);
    // As many random bits as the type has digits: the conversions are exact, and 1 is never reached by rounding.
    constexpr int digits = std::numeric_limits<T>::digits;
    if constexpr (sizeof(T) == 8) {
      for (int k = 0; k < 2; ++k) out[k] = static_cast<double>(block.pair(k) >> (64 - digits)) * 0x1p-53;
    } else {
      constexpr float unit = 1.0f / (1 << digits);
      for (int k = 0; k < 4; ++k) out[k] = static_cast<T>(static_cast<float>(block.word[k] >> (32 - digits)) * unit);
    }
  }
};

struct NormalDraw {
  RandomKey key;
  template <class T>
  static constexpr int lanes = sizeof(T) == 8 ? 2 : 4;

  template <class T>
  LOCKSTEP_HOST_DEVICE void operator()(uint64_t index, T* out) const {
    const PhiloxBlock block = key.block(index);
    // The middle of one of 2^52 or 2^32 cells: exact, symmetric about 1/2, neither 0 nor 1.
    if constexpr (sizeof(T) == 8) {
      for (int k = 0; k < 2; ++k)
        out[k] = inverse_normal(multiply(add(static_cast<double>(block.pair(k) >> 12), 0.5), 0x1p-52));
    } else {
      for (int k = 0; k < 4; ++k)
        out[k] = static_cast<T>(static_cast<float>(inverse_normal(multiply(add(block.word[k], 0.5), 0x1p-32))));
    }
  }
};

struct BernoulliDraw {
  RandomKey key;
  uint64_t threshold;  // out of 2^32
  template <class T>
  static constexpr int lanes = 4;

  template <class T>
  LOCKSTEP_HOST_DEVICE void operator()(uint64_t index, T* out) const {
    const PhiloxBlock block = key.block(index);
    for (int k = 0; k < 4; ++k) out[k] = static_cast<T>(block.word[k] < threshold ? 1.0f : 0.0f);
  }
};

struct PermutationDraw {
  KeyedPermutation permutation;
  template <class T>
  static constexpr int lanes = 1;

  template <class T>
  LOCKSTEP_HOST_DEVICE void operator()(uint64_t index, T* out) const {
    *out = static_cast<T>(permutation(static_cast<int64_t>(index)));
  }
};

using Draw = std::variant<UniformDraw, NormalDraw, BernoulliDraw, PermutationDraw>;

// Writes out[i] for begin <= i < end, where out[i] is number offset + i of the draw.
template <class T, class OneDraw>
LOCKSTEP_HOST_DEVICE void fill_range(T* out, int64_t begin, int64_t end, uint64_t offset, const OneDraw& draw) {
  constexpr int lanes = OneDraw::template lanes<T>;
  T block[lanes];
  for (int64_t i = begin; i < end;) {
    const uint64_t position = offset + static_cast<uint64_t>(i);
    draw(position / lanes, block);
    for (int k = static_cast<int>(position % lanes); k < lanes && i < end; ++k) out[i++] = block[k];
  }
}

}  // namespace lockstep::detail
