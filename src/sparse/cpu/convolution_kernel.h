// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/sparse/kernel_map.h"

namespace lockstep::sparse::cpu {

/// y[out] = sum over offsets k and pairs (in, out) of x[in] W[k], weights [K, Cin / groups, Cout]; with
/// `transpose_weights` x has Cout channels, y Cin, and W[k] is transposed group by group. All tensors are contiguous, of
/// one type, and their sizes agree.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const KernelMap& map, bool transpose_weights,
                    int64_t groups);

/// dW[k] = sum over pairs (in, out) at k of x[in]^T g[out], group by group: [K, Cin / groups, Cout].
at::Tensor weight_gradient(const at::Tensor& x, const at::Tensor& g, const KernelMap& map, int64_t groups);

}  // namespace lockstep::sparse::cpu
