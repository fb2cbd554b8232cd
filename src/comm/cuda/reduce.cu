// SPDX-License-Identifier: Apache-2.0
// The canonical tree on a GPU: a thread takes 16 bytes, or one element, through all sources, so the order of additions
// is the program's, and nothing is shared between threads. Additions are rounded to the dtype, as on the CPU.
#include "comm/cuda/reduce.h"

#include <c10/cuda/CUDAException.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {
namespace {

template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<c10::Half> {
  using type = float;
};
template <>
struct Wide<c10::BFloat16> {
  using type = float;
};

template <class T>
__device__ T combine(ReduceOp op, T a, T b) {
  using Value = typename Wide<T>::type;
  const Value x = static_cast<Value>(a), y = static_cast<Value>(b);
  if (op == ReduceOp::min) return x != x ? a : (y != y || y < x ? b : a);
  if (op == ReduceOp::max) return x != x ? a : (y != y || x < y ? b : a);
  if constexpr (std::is_same_v<T, bool>)
    return x || y;
  else if constexpr (std::is_same_v<T, float>)
    return __fadd_rn(x, y);
  else if constexpr (std::is_same_v<T, double>)
    return __dadd_rn(x, y);
  else
    return static_cast<T>(x + y);
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Lane {
  T values[kCount];
};

/// `job.count` counts lanes here.
template <class T, int kCount>
__global__ void reduce_kernel(const __grid_constant__ CudaReduce job) {
  using Value = typename Wide<T>::type;
  constexpr int kAhead = kCount > 1 ? 4 : 1;  // sources on their way from memory at once
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < job.count; i += step) {
    Lane<T, kCount> stack[kCudaReduceDepth];
    int top = 0;
    for (int first = 0; first < job.sources; first += kAhead) {
      Lane<T, kCount> next[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (first + k < job.sources) next[k] = reinterpret_cast<const Lane<T, kCount>*>(job.source[first + k])[i];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (first + k >= job.sources) break;
        for (int m = job.merges[first + k]; m > 0; --m) {
          --top;
          for (int e = 0; e < kCount; ++e)
            next[k].values[e] = combine<T>(job.op, stack[top].values[e], next[k].values[e]);
        }
        stack[top++] = next[k];
      }
    }
    if (job.one_result && job.divisor != 1)
      for (T& value : stack[0].values)
        value = static_cast<T>(static_cast<Value>(value) / static_cast<Value>(job.divisor));
    for (int d = 0; d < job.destinations; ++d)
      reinterpret_cast<Lane<T, kCount>*>(job.destination[d])[i] = stack[job.one_result ? 0 : d];
  }
}

template <class T, int kCount>
void launch_lanes(CudaReduce job, int64_t first, int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  for (int k = 0; k < job.sources; ++k) job.source[k] += first * static_cast<int64_t>(sizeof(T));
  for (int d = 0; d < job.destinations; ++d) job.destination[d] += first * static_cast<int64_t>(sizeof(T));
  job.count = count / kCount;
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((job.count + kThreads - 1) / kThreads, 4096));
  reduce_kernel<T, kCount><<<blocks, kThreads, 0, stream>>>(job);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

/// Whole lanes of 16 bytes where all begin at a multiple of that, and what is left one by one.
template <class T>
void launch(const CudaReduce& job, cudaStream_t stream) {
  constexpr int kCount = 16 / sizeof(T);
  uintptr_t places = 0;
  for (int k = 0; k < job.sources; ++k) places |= reinterpret_cast<uintptr_t>(job.source[k]);
  for (int d = 0; d < job.destinations; ++d) places |= reinterpret_cast<uintptr_t>(job.destination[d]);
  const int64_t in_lanes = places % 16 == 0 ? job.count / kCount * kCount : 0;
  launch_lanes<T, kCount>(job, 0, in_lanes, stream);
  launch_lanes<T, 1>(job, in_lanes, job.count - in_lanes, stream);
}

}  // namespace

void launch_reduce(const CudaReduce& job, c10::ScalarType dtype, cudaStream_t stream) {
  if (job.count == 0) return;
  switch (dtype) {
    case c10::ScalarType::Float:
      return launch<float>(job, stream);
    case c10::ScalarType::Double:
      return launch<double>(job, stream);
    case c10::ScalarType::Half:
      return launch<c10::Half>(job, stream);
    case c10::ScalarType::BFloat16:
      return launch<c10::BFloat16>(job, stream);
    case c10::ScalarType::Int:
      return launch<int32_t>(job, stream);
    case c10::ScalarType::Long:
      return launch<int64_t>(job, stream);
    case c10::ScalarType::Bool:
      return launch<bool>(job, stream);
    case c10::ScalarType::Byte:  // a copy, byte by byte
      return launch<uint8_t>(job, stream);
    default:
      fail("reduce", "dtype is ", c10::toString(dtype),
           ", expected float32, float64, float16, bfloat16, int32, int64 or bool");
  }
}

}  // namespace lockstep::comm
