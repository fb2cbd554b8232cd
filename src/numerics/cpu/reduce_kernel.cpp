// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "numerics/cpu/reduce_kernel.h"

#include <cstring>

namespace lockstep::detail::LOCKSTEP_ISA {
namespace {

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct Float {
  using Storage = float;
  using Value = float;
  static Value load(Storage x) { return x; }
  static Storage store(Value x) { return x; }
};
struct Double {
  using Storage = double;
  using Value = double;
  static Value load(Storage x) { return x; }
  static Storage store(Value x) { return x; }
};
struct Int32 {
  using Storage = int32_t;
  using Value = uint32_t;  // overflow wraps
  static Value load(Storage x) { return static_cast<Value>(x); }
  static Storage store(Value x) { return static_cast<Storage>(x); }
};
struct Int64 {
  using Storage = int64_t;
  using Value = uint64_t;
  static Value load(Storage x) { return static_cast<Value>(x); }
  static Storage store(Value x) { return static_cast<Storage>(x); }
};
struct BFloat16 {
  using Storage = uint16_t;
  using Value = float;
  static Value load(Storage x) { return from_bits(uint32_t{x} << 16); }
  static Storage store(Value x) {  // to nearest, ties to even; a NaN stays a (quiet) NaN
    const uint32_t bits = to_bits(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return static_cast<Storage>(x != x ? (bits >> 16) | 0x40 : rounded);
  }
};
struct Half {
  using Storage = uint16_t;
  using Value = float;
  static Value load(Storage x) {
    // The exponent is moved by a multiplication, which makes denormals right too; infinity and NaN are patched.
    const uint32_t magnitude = uint32_t{x} & 0x7fff;
    const float scaled = from_bits(magnitude << 13) * from_bits(0x77800000);  // 2^112
    const uint32_t bits = magnitude >= 0x7c00 ? (magnitude << 13) | 0x7f800000 : to_bits(scaled);
    return from_bits(bits | (uint32_t{x} & 0x8000) << 16);
  }
  static Storage store(Value x) {
    const uint32_t bits = to_bits(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    // Adding 0.5 puts the last bit of a float16 denormal at the last bit of the float: the FPU rounds it.
    const uint32_t denormal = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t result = magnitude < 0x38800000 ? denormal : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;  // rounds to infinity
    result = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : result;
    return static_cast<Storage>(result | (bits >> 16 & 0x8000));
  }
};
struct Bool {
  using Storage = uint8_t;
  using Value = uint8_t;
  static Value load(Storage x) { return x != 0; }
  static Storage store(Value x) { return x; }
};

struct Sum {
  template <class T>
  static auto of(typename T::Value a, typename T::Value b) {
    return a + b;
  }
};
template <bool want_less>
struct Extreme {
  template <class T>
  static auto of(typename T::Value a, typename T::Value b) {
    const auto x = T::store(a), y = T::store(b);  // integers compare with their sign
    const bool second = want_less ? signed_less<T>(y, x) : signed_less<T>(x, y);
    return a != a ? a : (b != b || second ? b : a);
  }
  template <class T>
  static bool signed_less(typename T::Storage x, typename T::Storage y) {
    return x < y;
  }
};

// The floats that are stored in 16 bits are compared as floats, not as their storage.
template <bool want_less>
struct ExtremeFloat {
  template <class T>
  static float of(float a, float b) {
    return a != a ? a : (b != b || (want_less ? b < a : a < b) ? b : a);
  }
};
struct Or {
  template <class T>
  static uint8_t of(uint8_t a, uint8_t b) {
    return a | b;
  }
};
struct And {
  template <class T>
  static uint8_t of(uint8_t a, uint8_t b) {
    return a & b;
  }
};

// A piece stays in the first-level cache while all sources are added to it.
constexpr int64_t kPieceBytes = 4096;

template <class T, class Op>
void merge(typename T::Storage* out, const typename T::Storage* left, const typename T::Storage* right, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = T::store(Op::template of<T>(T::load(left[i]), T::load(right[i])));
}

template <class T>
void divide(typename T::Storage* out, const typename T::Storage* in, int64_t n, int64_t divisor) {
  const auto d = static_cast<typename T::Value>(divisor);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = T::store(T::load(in[i]) / d);
}

template <class T, class Op>
void run(const ReduceJob& job) {
  using Storage = typename T::Storage;
  constexpr int64_t kPiece = kPieceBytes / sizeof(Storage);
  alignas(64) Storage scratch[kReduceMaxDepth][kPiece];
  const Storage* stack[kReduceMaxDepth];
  for (int64_t at = 0; at < job.count; at += kPiece) {
    const int64_t n = job.count - at < kPiece ? job.count - at : kPiece;
    int64_t top = 0;
    for (int64_t k = 0; k < job.sources; ++k) {
      stack[top++] = reinterpret_cast<const Storage*>(job.source[k]) + at;
      for (int m = job.merges[k]; m > 0; --m) {
        --top;
        merge<T, Op>(scratch[top - 1], stack[top - 1], stack[top], n);
        stack[top - 1] = scratch[top - 1];
      }
    }
    if (job.one_result && job.divisor != 1) {
      divide<T>(scratch[0], stack[0], n, job.divisor);
      stack[0] = scratch[0];
    }
    for (int64_t d = 0; d < job.destinations; ++d) {
      Storage* to = reinterpret_cast<Storage*>(job.destination[d]) + at;
      const Storage* from = stack[job.one_result ? 0 : d];
      if (to != from) std::memcpy(to, from, n * sizeof(Storage));
    }
  }
}

template <class T, class Min, class Max>
void run_kind(const ReduceJob& job) {
  if (job.kind == ReduceKind::sum) return run<T, Sum>(job);
  if (job.kind == ReduceKind::min) return run<T, Min>(job);
  run<T, Max>(job);
}

}  // namespace

void reduce_kernel(const ReduceJob& job) {
  switch (job.type) {
    case ReduceType::f32:
      return run_kind<Float, ExtremeFloat<true>, ExtremeFloat<false>>(job);
    case ReduceType::f64:
      return run_kind<Double, Extreme<true>, Extreme<false>>(job);
    case ReduceType::f16:
      return run_kind<Half, ExtremeFloat<true>, ExtremeFloat<false>>(job);
    case ReduceType::bf16:
      return run_kind<BFloat16, ExtremeFloat<true>, ExtremeFloat<false>>(job);
    case ReduceType::i32:
      return run_kind<Int32, Extreme<true>, Extreme<false>>(job);
    case ReduceType::i64:
      return run_kind<Int64, Extreme<true>, Extreme<false>>(job);
    case ReduceType::boolean:
      if (job.kind == ReduceKind::min) return run<Bool, And>(job);
      return run<Bool, Or>(job);
  }
}

}  // namespace lockstep::detail::LOCKSTEP_ISA
