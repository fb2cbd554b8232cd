// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

namespace lockstep::norm {

/// The loops of a batch norm in one instruction set. Sums are float64 and added in an order that the sizes alone fix.
/// A *plane* is a run of one channel's elements ([N, C, S] has N * C of them), *rows* are [rows, C]. Where a pointer
/// named for a statistic is passed it holds a value for each channel.
template <class T>
struct BatchNormKernels {
  /// sums[0] += sum of (x - shift), sums[1] += sum of squares, over `runs` planes that begin `stride` apart.
  void (*plane_moments)(const T* x, int64_t runs, int64_t stride, int64_t length, double shift, double* sums);
  /// sums[0] += sum of g, sums[1] += sum of g * (x - mean).
  void (*plane_sums)(const T* g, const T* x, int64_t runs, int64_t stride, int64_t length, double mean, double* sums);
  /// y = (x - mean) * scale + bias
  void (*plane_normalize)(const T* x, T* y, int64_t length, T mean, T scale, T bias);
  /// dx = scale * (g - part - (x - mean) * slope)
  void (*plane_gradient)(const T* g, const T* x, T* dx, int64_t length, T mean, T scale, T part, T slope);

  /// The same on rows; sums are [2, C].
  void (*row_moments)(const T* x, int64_t rows, int64_t channels, const double* shift, double* sums);
  void (*row_sums)(const T* g, const T* x, int64_t rows, int64_t channels, const double* mean, double* sums);
  void (*row_normalize)(const T* x, T* y, int64_t rows, int64_t channels, const T* mean, const T* scale, const T* bias);
  void (*row_gradient)(const T* g, const T* x, T* dx, int64_t rows, int64_t channels, const T* mean, const T* scale,
                       const T* part, const T* slope);
};

LOCKSTEP_DECLARE_ISA(const BatchNormKernels<float>& float_batch_norm();
                     const BatchNormKernels<double>& double_batch_norm())

}  // namespace lockstep::norm
