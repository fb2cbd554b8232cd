// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace lockstep {
enum class ReduceOp : uint8_t;
}

namespace lockstep::comm {

constexpr int kCudaReduceMax = 64;
constexpr int kCudaReduceDepth = 16;

/// A reduction as its kernel takes it, by value.
struct CudaReduce {
  const std::byte* source[kCudaReduceMax];
  std::byte* destination[kCudaReduceMax];
  uint8_t merges[kCudaReduceMax];
  int sources;
  int destinations;
  bool one_result;
  int64_t count;
  int64_t divisor;
  ReduceOp op;
};

void launch_reduce(const CudaReduce& job, c10::ScalarType dtype, cudaStream_t stream);

}  // namespace lockstep::comm
