// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/sparse/kernel_map.h"

/// Convolutions on features. All results are the same bits for any number of threads; float16 and bfloat16 are summed
/// in float32; all have gradients of any order. They throw Error on sizes, types and devices that don't fit together.
namespace lockstep::sparse {

/// y[out] = sum over offsets k and pairs (in, out) of x[in] weight[k]: x [map.in_size, Cin] and weight
/// [K, Cin / groups, Cout] give [map.out_size, Cout]. Channels of a group are neighbours, as in torch.
/// The transposed convolution is this one on a transposed map.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, int64_t groups = 1);

/// y[out][c] = sum of x[in][c] weight[k][c]: weight [K, C].
at::Tensor convolve_channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map);

/// x weight + bias: x [N, Cin], weight [Cin, Cout], bias [Cout] or [1, Cout] or undefined. Unlike a BLAS product it
/// gives the same bits for any number of threads.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// x + bias; the bias' gradient is summed in a fixed order.
at::Tensor add_bias(const at::Tensor& x, const at::Tensor& bias);
/// x * weight, one value a channel, likewise.
at::Tensor scale_channels(const at::Tensor& x, const at::Tensor& weight);

}  // namespace lockstep::sparse
