// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "numerics/random_fill.h"

namespace lockstep::detail {
namespace {

// A thread fills what one block of random words covers; the first and the last may be cut short.
template <class T, class OneDraw>
__global__ void fill_kernel(T* out, int64_t size, uint64_t offset, OneDraw draw) {
  constexpr int64_t lanes = OneDraw::template lanes<T>;
  const int64_t skipped = static_cast<int64_t>(offset % lanes);
  const int64_t begin = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * lanes - skipped;
  if (begin < size) fill_range(out, max(begin, int64_t{0}), min(begin + lanes, size), offset, draw);
}

}  // namespace

void fill_cuda(const at::Tensor& tensor, const Draw& any_draw, uint64_t offset) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  std::visit(
      [&](const auto& draw) {
        visit_dtype(draw, tensor.scalar_type(), [&](auto zero) {
          using T = decltype(zero);
          using OneDraw = std::decay_t<decltype(draw)>;
          constexpr int64_t threads = 256, lanes = OneDraw::template lanes<T>;
          const int64_t size = tensor.numel();
          if (size == 0) return;
          const int64_t blocks = (size / lanes + 2 + threads - 1) / threads;
          fill_kernel<<<static_cast<unsigned>(blocks), threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
              tensor.mutable_data_ptr<T>(), size, offset, draw);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        });
      },
      any_draw);
}

}  // namespace lockstep::detail
