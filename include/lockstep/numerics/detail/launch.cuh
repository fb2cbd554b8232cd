// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDAException.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/portable.h"

namespace lockstep::portable {

constexpr int kThreads = 256;

template <class Body>
__global__ void for_each_kernel(int64_t count, const __grid_constant__ Body body) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) body(i);
}

inline unsigned checked_blocks(int64_t blocks) {
  require(blocks <= std::numeric_limits<int32_t>::max(), "CUDA", "a launch needs ", blocks,
          " blocks, expected fewer than 2^31");
  return static_cast<unsigned>(blocks);
}

/// Runs body(0), ..., body(count - 1) on the GPU, one thread each. A body is a struct of plain values.
template <class Body>
void for_each_on_gpu(int64_t count, cudaStream_t stream, const Body& body) {
  if (count == 0) return;
  for_each_kernel<<<checked_blocks(divide_up(count, kThreads)), kThreads, 0, stream>>>(count, body);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace lockstep::portable
