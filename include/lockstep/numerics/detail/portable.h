// SPDX-License-Identifier: Apache-2.0
// Code that a GPU runs and a CPU can run too: kernels are thin loops over what the headers beside this one define, so
// that tests prove the algorithms where no GPU is.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lockstep/numerics/philox.h"

namespace lockstep::portable {

/// Sums of float16 and bfloat16 are float32.
template <class Storage>
using Compute = std::conditional_t<std::is_same_v<Storage, double>, double, float>;

/// a * b + c rounded once, on either side.
LOCKSTEP_HOST_DEVICE inline float multiply_add(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
LOCKSTEP_HOST_DEVICE inline double multiply_add(double a, double b, double c) {
  return ::fma(a, b, c);
}

LOCKSTEP_HOST_DEVICE constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Joins load(0), ..., load(count - 1), count > 0, in the order of a balanced tree: neighbours first. A tree of fewer
/// than 2^kLevels.
template <int kLevels = 40, class Load, class Join>
LOCKSTEP_HOST_DEVICE auto join_as_tree(int64_t count, const Load& load, const Join& join) {
  using Value = std::decay_t<decltype(load(int64_t{0}))>;
  Value stack[kLevels];
  int top = 0;
  for (int64_t i = 0; i < count; ++i) {
    stack[top++] = load(i);
    for (int64_t done = i + 1; done % 2 == 0; done /= 2) {
      --top;
      stack[top - 1] = join(stack[top - 1], stack[top]);
    }
  }
  while (top > 1) {
    --top;
    stack[top - 1] = join(stack[top - 1], stack[top]);
  }
  return stack[0];
}

template <class Load>
LOCKSTEP_HOST_DEVICE auto sum_as_tree(int64_t count, const Load& load) {
  return join_as_tree(count, load, [](auto a, auto b) { return a + b; });
}

/// Rows cut into slices, from their number alone: at least `least` rows each, and not more slices than one thread can
/// join in reasonable time.
struct RowSlices {
  static constexpr int64_t kMost = 512;
  int64_t rows, length, count;

  explicit RowSlices(int64_t all_rows, int64_t least = 256, int64_t most = kMost)
      : rows(all_rows),
        length(divide_up(all_rows, most) > least ? divide_up(all_rows, most) : least),
        count(all_rows > 0 ? divide_up(all_rows, length) : 1) {}
  LOCKSTEP_HOST_DEVICE int64_t begin(int64_t slice) const { return slice * length; }
  LOCKSTEP_HOST_DEVICE int64_t end(int64_t slice) const {
    return (slice + 1) * length < rows ? (slice + 1) * length : rows;
  }
};

/// Lines of which one thread joins neighbours where there are more of them: a power of two, so that the results are
/// nodes of the same tree.
constexpr int64_t kTogether = 64;
constexpr int kLevelsTogether = 8;

/// The next lines of a group that one thread joins.
struct Lines {
  int64_t first, count;

  LOCKSTEP_HOST_DEVICE Lines(int64_t all, int64_t together, int64_t group)
      : first(group * together), count(all - first < together ? all - first : together) {}
};

/// Adds up `count` lines of `size` values, or groups of neighbours among them; in float64 where that is what is asked
/// for.
template <class From, class To>
struct SumLines {
  using Sum = std::conditional_t<std::is_same_v<To, double>, double, From>;
  const From* lines;
  int64_t count, size;
  To* sums;
  int64_t together = count;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const Lines group(count, together, i / size);
    const From* const first = lines + group.first * size + i % size;
    sums[i] =
        static_cast<To>(sum_as_tree(group.count, [&](int64_t line) { return static_cast<Sum>(first[line * size]); }));
  }
};

}  // namespace lockstep::portable
