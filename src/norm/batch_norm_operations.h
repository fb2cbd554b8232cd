// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

/// What a batch norm computes on one replica: x is [N, C, ...], of any floating-point dtype and strides; statistics
/// are [C] or [2, C], float64. An undefined weight is 1, an undefined bias 0.
namespace lockstep::norm {

/// The moments of x, [3, C]: count, mean, sum of squared deviations.
at::Tensor batch_moments(const at::Tensor& x);

/// (x - mean) * inverse_deviation * weight + bias, in x's dtype and memory format.
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                           const at::Tensor& weight, const at::Tensor& bias);

/// Sums of g and of g * normalised x, [2, C].
at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& inverse_deviation);

/// The gradient of x, given the two sums over the whole batch divided by its count.
at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& inverse_deviation, const at::Tensor& weight, const at::Tensor& means);

/// The CPU's are kernels of ours: the same bits for any number of intra-op threads.
namespace cpu {
at::Tensor batch_moments(const at::Tensor& x);
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& bias);
at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean);
at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& scale, const at::Tensor& part, const at::Tensor& slope);
}  // namespace cpu

/// The same in ATen's operations, on any device.
namespace any {
at::Tensor batch_moments(const at::Tensor& x);
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& bias);
at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean);
at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& scale, const at::Tensor& part, const at::Tensor& slope);
}  // namespace any

}  // namespace lockstep::norm
