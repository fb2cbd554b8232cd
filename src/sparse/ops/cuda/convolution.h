// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "sparse/ops/cuda/product/block.h"
#include "sparse/ops/cuda/product/forward_tile.h"
#include "sparse/ops/cuda/product/weight_tile.h"

namespace lockstep::sparse::cuda {

/// Output channels of a block: the narrow one where that is all there are.
constexpr int kNarrow = 32, kWide = 64;

// Both leave sums where offsets or tiles are in parts. For float, double, c10::Half and c10::BFloat16. With `tf32`
// products of float32 are made on tensor cores.
template <class Storage>
void launch_forward(const ForwardJob<Storage>& job, bool tf32, cudaStream_t stream);
template <class Storage>
void launch_weight(const WeightJob<Storage>& job, bool tf32, cudaStream_t stream);

}  // namespace lockstep::sparse::cuda
