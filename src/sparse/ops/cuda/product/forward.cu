// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/detail/launch.cuh"
#include "sparse/ops/cuda/convolution.h"
#include "sparse/ops/cuda/product/tensor_product.cuh"

namespace lockstep::sparse::cuda {
namespace {

template <class Storage, class Product, int kColumns, int kPack>
__global__ void __launch_bounds__(kTileThreads, kBlocksAtOnce<Storage, kColumns, kPack>)
    forward_kernel(const __grid_constant__ ForwardJob<Storage> job) {
  using Tile = ForwardTile<Storage, Product, kColumns, kPack>;
  __shared__ typename Tile::Shared shared;
  DeviceBlock<typename Tile::Registers> block;
  Tile::run(block, shared, job, blockIdx.x);
}

}  // namespace

template <class Storage>
void launch_forward(const ForwardJob<Storage>& job, bool tf32, cudaStream_t stream) {
  choose_product<Storage>(job.to, tf32, [&](auto product, auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    const unsigned blocks = portable::checked_blocks(job.blocks(kColumns));
    if (blocks == 0) return;
    if (job.moves_whole())
      forward_kernel<Storage, decltype(product), kColumns, kWhole<Storage>><<<blocks, kTileThreads, 0, stream>>>(job);
    else
      forward_kernel<Storage, decltype(product), kColumns, 1><<<blocks, kTileThreads, 0, stream>>>(job);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

template void launch_forward(const ForwardJob<float>&, bool, cudaStream_t);
template void launch_forward(const ForwardJob<double>&, bool, cudaStream_t);
template void launch_forward(const ForwardJob<c10::Half>&, bool, cudaStream_t);
template void launch_forward(const ForwardJob<c10::BFloat16>&, bool, cudaStream_t);

}  // namespace lockstep::sparse::cuda
