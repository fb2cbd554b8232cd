// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/norm/detail/batch_norm.h"

namespace lockstep::norm {

/// Batch norm's loops over x [N, C, ...] of any floating-point dtype and strides.
Operations strided_operations();

/// A ghost batch norm in training, by torch's own kernels (cuDNN's among them): for GPUs, where they are the fastest.
/// Of two rows or more.
at::Tensor ghost_by_torch(const at::Tensor& x, const Layer& layer, Peers* peers);

/// The CPU's are kernels of ours: the same bits for any number of intra-op threads.
namespace cpu {
at::Tensor batch_moments(const at::Tensor& x);
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& bias);
at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean);
at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& scale, const at::Tensor& part, const at::Tensor& slope);
}  // namespace cpu

/// CUDA's are those of rows (row_kernels.h), as Operations take them.
namespace cuda {
at::Tensor batch_moments(const at::Tensor& x);
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                           const at::Tensor& weight, const at::Tensor& bias);
at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& inverse_deviation);
at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& inverse_deviation, const at::Tensor& weight, const at::Tensor& means);
}  // namespace cuda

}  // namespace lockstep::norm
