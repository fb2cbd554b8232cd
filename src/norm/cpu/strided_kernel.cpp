// SPDX-License-Identifier: Apache-2.0
#include "norm/cpu/strided_kernel.h"

namespace lockstep::norm::LOCKSTEP_ISA {
namespace {

// Plane sums go to this many sums in turn, added up at the end, in every instruction set.
constexpr int64_t kLanes = 16;
// Row sums are made for so many channels at a time, so that they stay in the first-level cache.
constexpr int64_t kBlock = 256;

struct Lanes {
  double first[kLanes] = {};
  double second[kLanes] = {};

  void add_to(double* sums) const {
    for (int64_t l = 0; l < kLanes; ++l) sums[0] += first[l];
    for (int64_t l = 0; l < kLanes; ++l) sums[1] += second[l];
  }
};

template <class T>
void plane_moments(const T* x, int64_t runs, int64_t stride, int64_t length, double shift, double* sums) {
  Lanes lanes;
  for (int64_t run = 0; run < runs; ++run, x += stride) {
    int64_t i = 0;
    for (; i + kLanes <= length; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) {
        const double apart = static_cast<double>(x[i + l]) - shift;
        lanes.first[l] += apart;
        lanes.second[l] += apart * apart;
      }
    for (int64_t l = 0; i < length; ++i, ++l) {
      const double apart = static_cast<double>(x[i]) - shift;
      lanes.first[l] += apart;
      lanes.second[l] += apart * apart;
    }
  }
  lanes.add_to(sums);
}

template <class T>
void plane_sums(const T* g, const T* x, int64_t runs, int64_t stride, int64_t length, double mean, double* sums) {
  Lanes lanes;
  for (int64_t run = 0; run < runs; ++run, g += stride, x += stride) {
    int64_t i = 0;
    for (; i + kLanes <= length; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) {
        const double gradient = static_cast<double>(g[i + l]);
        lanes.first[l] += gradient;
        lanes.second[l] += gradient * (static_cast<double>(x[i + l]) - mean);
      }
    for (int64_t l = 0; i < length; ++i, ++l) {
      const double gradient = static_cast<double>(g[i]);
      lanes.first[l] += gradient;
      lanes.second[l] += gradient * (static_cast<double>(x[i]) - mean);
    }
  }
  lanes.add_to(sums);
}

template <class T>
void plane_normalize(const T* x, T* __restrict y, int64_t length, T mean, T scale, T bias) {
  for (int64_t i = 0; i < length; ++i) y[i] = (x[i] - mean) * scale + bias;
}

template <class T>
void plane_gradient(const T* g, const T* x, T* __restrict dx, int64_t length, T mean, T scale, T part, T slope) {
  for (int64_t i = 0; i < length; ++i) dx[i] = scale * (g[i] - part - (x[i] - mean) * slope);
}

template <class T>
void row_moments(const T* x, int64_t rows, int64_t channels, const double* shift, double* __restrict sums) {
  for (int64_t from = 0; from < channels; from += kBlock) {
    const int64_t width = channels - from < kBlock ? channels - from : kBlock;
    double first[kBlock] = {}, second[kBlock] = {};
    for (int64_t row = 0; row < rows; ++row) {
      const T* at = x + row * channels + from;
      for (int64_t c = 0; c < width; ++c) {
        const double apart = static_cast<double>(at[c]) - shift[from + c];
        first[c] += apart;
        second[c] += apart * apart;
      }
    }
    for (int64_t c = 0; c < width; ++c) {
      sums[from + c] += first[c];
      sums[channels + from + c] += second[c];
    }
  }
}

template <class T>
void row_sums(const T* g, const T* x, int64_t rows, int64_t channels, const double* mean, double* __restrict sums) {
  for (int64_t from = 0; from < channels; from += kBlock) {
    const int64_t width = channels - from < kBlock ? channels - from : kBlock;
    double first[kBlock] = {}, second[kBlock] = {};
    for (int64_t row = 0; row < rows; ++row) {
      const T *at = x + row * channels + from, *gradient = g + row * channels + from;
      for (int64_t c = 0; c < width; ++c) {
        const double value = static_cast<double>(gradient[c]);
        first[c] += value;
        second[c] += value * (static_cast<double>(at[c]) - mean[from + c]);
      }
    }
    for (int64_t c = 0; c < width; ++c) {
      sums[from + c] += first[c];
      sums[channels + from + c] += second[c];
    }
  }
}

template <class T>
void row_normalize(const T* x, T* __restrict y, int64_t rows, int64_t channels, const T* mean, const T* scale,
                   const T* bias) {
  for (int64_t row = 0; row < rows; ++row, x += channels, y += channels)
    for (int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean[c]) * scale[c] + bias[c];
}

template <class T>
void row_gradient(const T* g, const T* x, T* __restrict dx, int64_t rows, int64_t channels, const T* mean,
                  const T* scale, const T* part, const T* slope) {
  for (int64_t row = 0; row < rows; ++row, g += channels, x += channels, dx += channels)
    for (int64_t c = 0; c < channels; ++c) dx[c] = scale[c] * (g[c] - part[c] - (x[c] - mean[c]) * slope[c]);
}

template <class T>
constexpr BatchNormKernels<T> kernels{plane_moments<T>, plane_sums<T>, plane_normalize<T>, plane_gradient<T>,
                                      row_moments<T>,   row_sums<T>,   row_normalize<T>,   row_gradient<T>};

}  // namespace

const BatchNormKernels<float>& float_batch_norm() {
  return kernels<float>;
}
const BatchNormKernels<double>& double_batch_norm() {
  return kernels<double>;
}

}  // namespace lockstep::norm::LOCKSTEP_ISA
