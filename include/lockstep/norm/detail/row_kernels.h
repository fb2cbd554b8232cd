// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

/// Batch norm's loops over rows [N, C] of any floating-point type, float16 and bfloat16 added up in float32. The sparse
/// layer registers them with torch's dispatcher (lockstep_sparse::NAME), which finds the device's; Python calls them
/// there. They have no gradients of their own.
namespace lockstep::norm {

#define LOCKSTEP_NORM_ROW_KERNELS                                                                        \
  /* [3, C]: the number of rows, their mean, the sum of squared deviations from it */                    \
  at::Tensor column_moments(const at::Tensor& x);                                                        \
  /* (x - mean) * inverse_deviation * weight + bias, all [C] */                                          \
  at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation, \
                       const at::Tensor& weight, const at::Tensor& bias);                                \
  /* [2, C]: the sums of g and of g times the normalised x */                                            \
  at::Tensor normalize_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,            \
                            const at::Tensor& inverse_deviation);                                        \
  /* The gradient of x: scale * (g - means[0] - normalised x * means[1]) */                              \
  at::Tensor normalize_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,        \
                                const at::Tensor& inverse_deviation, const at::Tensor& scale, const at::Tensor& means)
namespace cpu {
LOCKSTEP_NORM_ROW_KERNELS;
}
namespace cuda {
LOCKSTEP_NORM_ROW_KERNELS;
/// Moments [R, 3, C] joined as a tree, [3, C].
at::Tensor merge_moments(const at::Tensor& all);
}  // namespace cuda
#undef LOCKSTEP_NORM_ROW_KERNELS

}  // namespace lockstep::norm
