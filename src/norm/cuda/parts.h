// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime_api.h>

#include "lockstep/numerics/detail/portable.h"
#include "norm/channel_parts.h"

// What one thread does in a batch norm of rows: a slice of rows of one channel. The slices of a channel are joined as a
// tree, statistics in float64.

namespace lockstep::norm::cuda {

using portable::Compute;
using portable::kTogether;
using portable::Lines;
using portable::multiply_add;
using portable::RowSlices;
using portable::SumLines;

/// The number of rows, their mean, the sum of squared deviations from it.
struct Moments {
  double count, mean, squares;
};

/// Of an empty side nothing counts.
LOCKSTEP_HOST_DEVICE inline Moments join_moments(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const double count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * b.count / count, a.squares + b.squares + delta * delta * a.count * b.count / count};
}

/// Moments as operations tell them, [3, channels], and one group's after the other's where there are several.
struct MomentRows {
  int64_t channels;
  double* rows;

  LOCKSTEP_HOST_DEVICE Moments get(int64_t group, int64_t c) const {
    const double* const first = rows + 3 * group * channels + c;
    return {first[0], first[channels], first[2 * channels]};
  }
  LOCKSTEP_HOST_DEVICE void set(int64_t group, int64_t c, const Moments& moments) const {
    double* const first = rows + 3 * group * channels + c;
    first[0] = moments.count;
    first[channels] = moments.mean;
    first[2 * channels] = moments.squares;
  }
};

template <class Storage>
struct SliceMoments {
  const Storage* x;
  int64_t channels;
  RowSlices slices;
  MomentRows moments;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    using T = Compute<Storage>;
    const int64_t slice = i / channels, c = i % channels, begin = slices.begin(slice), end = slices.end(slice);
    T sum = 0, squares = 0;
    for (int64_t row = begin; row < end; ++row) sum += static_cast<T>(x[row * channels + c]);
    const T mean = begin < end ? sum / static_cast<T>(end - begin) : T(0);
    for (int64_t row = begin; row < end; ++row) {
      const T apart = static_cast<T>(x[row * channels + c]) - mean;
      squares = multiply_add(apart, apart, squares);
    }
    moments.set(slice, c, {static_cast<double>(end - begin), static_cast<double>(mean), static_cast<double>(squares)});
  }
};

/// Joins neighbours among `count` groups' moments.
struct JoinMoments {
  MomentRows given, joined;
  int64_t count, together;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t group = i / given.channels, c = i % given.channels;
    const Lines lines(count, together, group);
    joined.set(group, c,
               portable::join_as_tree<portable::kLevelsTogether>(
                   lines.count, [&](int64_t line) { return given.get(lines.first + line, c); }, join_moments));
  }
};

template <class Storage>
struct Normalize {
  using T = Compute<Storage>;
  const Storage* x;
  const T *mean, *scale, *shift;
  int64_t channels;
  RowSlices slices;
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t slice = i / channels, c = i % channels;
    const T centre = mean[c], factor = scale[c], bias = shift[c];
    for (int64_t row = slices.begin(slice); row < slices.end(slice); ++row)
      y[row * channels + c] =
          static_cast<Storage>(multiply_add(static_cast<T>(x[row * channels + c]) - centre, factor, bias));
  }
};

/// sums[slice] = [2, channels]: of g, and of g times the normalised x.
template <class Storage>
struct SliceGradients {
  using T = Compute<Storage>;
  const Storage *g, *x;
  const T *mean, *inverse_deviation;
  int64_t channels;
  RowSlices slices;
  T* sums;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t slice = i / channels, c = i % channels;
    T sum = 0, product = 0;
    for (int64_t row = slices.begin(slice); row < slices.end(slice); ++row) {
      const T value = static_cast<T>(g[row * channels + c]);
      sum += value;
      product = multiply_add(value, (static_cast<T>(x[row * channels + c]) - mean[c]) * inverse_deviation[c], product);
    }
    sums[2 * slice * channels + c] = sum;
    sums[(2 * slice + 1) * channels + c] = product;
  }
};

template <class Storage>
struct NormalizeGradient {
  using T = Compute<Storage>;
  const Storage *g, *x;
  const T *mean, *inverse_deviation, *scale;
  const T* means;  ///< [2, channels]
  int64_t channels;
  RowSlices slices;
  Storage* dx;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t slice = i / channels, c = i % channels;
    const T centre = mean[c], inverse = inverse_deviation[c], factor = scale[c], part = means[c],
            slope = means[channels + c];
    for (int64_t row = slices.begin(slice); row < slices.end(slice); ++row) {
      const T normal = (static_cast<T>(x[row * channels + c]) - centre) * inverse;
      dx[row * channels + c] =
          static_cast<Storage>(factor * (static_cast<T>(g[row * channels + c]) - part - normal * slope));
    }
  }
};

/// Runs part(0), ..., part(count - 1) on the GPU. For the parts above, of float, double, c10::Half and c10::BFloat16.
template <class Part>
void launch(int64_t count, cudaStream_t stream, const Part& part);

/// All of them, to be instantiated beside the definition of launch().
#define LOCKSTEP_NORM_LAUNCH(...) template void launch(int64_t, cudaStream_t, const __VA_ARGS__&)
#define LOCKSTEP_NORM_LAUNCHES_OF(T)       \
  LOCKSTEP_NORM_LAUNCH(SliceMoments<T>);   \
  LOCKSTEP_NORM_LAUNCH(Normalize<T>);      \
  LOCKSTEP_NORM_LAUNCH(SliceGradients<T>); \
  LOCKSTEP_NORM_LAUNCH(NormalizeGradient<T>)
#define LOCKSTEP_NORM_LAUNCHES                    \
  LOCKSTEP_NORM_LAUNCHES_OF(float);               \
  LOCKSTEP_NORM_LAUNCHES_OF(double);              \
  LOCKSTEP_NORM_LAUNCHES_OF(c10::Half);           \
  LOCKSTEP_NORM_LAUNCHES_OF(c10::BFloat16);       \
  LOCKSTEP_NORM_LAUNCH(SumLines<float, double>);  \
  LOCKSTEP_NORM_LAUNCH(SumLines<double, double>); \
  LOCKSTEP_NORM_LAUNCH(JoinMoments);              \
  LOCKSTEP_NORM_LAUNCH(MakeStatistics);           \
  LOCKSTEP_NORM_LAUNCH(MoveRow<float>);           \
  LOCKSTEP_NORM_LAUNCH(MoveRow<double>)

}  // namespace lockstep::norm::cuda
