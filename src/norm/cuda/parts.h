// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime_api.h>

#include "lockstep/numerics/detail/portable.h"

// What one thread does in a batch norm of rows: a slice of rows of one channel first, then the slices of a channel,
// joined as a tree, statistics in float64.

namespace lockstep::norm::cuda {

using portable::Compute;
using portable::multiply_add;
using portable::RowSlices;
using portable::SumLines;

/// The number of rows, their mean, the sum of squared deviations from it.
struct Moments {
  double count, mean, squares;
};

LOCKSTEP_HOST_DEVICE inline Moments join_moments(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  const double count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * b.count / count, a.squares + b.squares + delta * delta * a.count * b.count / count};
}

template <class Storage>
struct SliceMoments {
  const Storage* x;
  int64_t channels;
  RowSlices slices;
  Moments* moments;

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
    moments[i] = {static_cast<double>(end - begin), static_cast<double>(mean), static_cast<double>(squares)};
  }
};

/// [3, channels], as operations tell them.
struct JoinMoments {
  const Moments* moments;
  int64_t slices, channels;
  double* out;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t c) const {
    const Moments sum = portable::join_as_tree(
        slices, [&](int64_t slice) { return moments[slice * channels + c]; }, join_moments);
    out[c] = sum.count;
    out[channels + c] = sum.mean;
    out[2 * channels + c] = sum.squares;
  }
};

template <class Storage>
struct Normalize {
  using T = Compute<Storage>;
  const Storage* x;
  const T *mean, *scale, *shift;
  int64_t channels;
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % channels;
    y[i] = static_cast<Storage>(multiply_add(static_cast<T>(x[i]) - mean[c], scale[c], shift[c]));
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
  Storage* dx;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % channels;
    const T normal = (static_cast<T>(x[i]) - mean[c]) * inverse_deviation[c];
    dx[i] = static_cast<Storage>(scale[c] * (static_cast<T>(g[i]) - means[c] - normal * means[channels + c]));
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
  LOCKSTEP_NORM_LAUNCH(JoinMoments)

}  // namespace lockstep::norm::cuda
