// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/detail/launch.cuh"
#include "sparse/ops/cuda/convolution.h"
#include "sparse/ops/cuda/product/tensor_product.cuh"

namespace lockstep::sparse::cuda {
namespace {

template <class Storage, class Product, int kColumns, int kPack>
__global__ void __launch_bounds__(kTileThreads, kBlocksAtOnce<Storage, kColumns, kPack>)
    weight_kernel(const __grid_constant__ WeightJob<Storage> job) {
  using Tile = WeightTile<Storage, Product, kColumns, kPack>;
  __shared__ typename Tile::Shared shared;
  DeviceBlock<typename Tile::Registers> block;
  Tile::run(block, shared, job, blockIdx.x);
}

}  // namespace

template <class Storage>
void launch_weight(const WeightJob<Storage>& job, bool tf32, cudaStream_t stream) {
  if (job.weights() == 0) return;
  choose_product<Storage>(job.out, tf32, [&](auto product, auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    const unsigned blocks = portable::checked_blocks(job.blocks(kColumns));
    if (job.moves_whole())
      weight_kernel<Storage, decltype(product), kColumns, kWhole<Storage>><<<blocks, kTileThreads, 0, stream>>>(job);
    else
      weight_kernel<Storage, decltype(product), kColumns, 1><<<blocks, kTileThreads, 0, stream>>>(job);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

template void launch_weight(const WeightJob<float>&, bool, cudaStream_t);
template void launch_weight(const WeightJob<double>&, bool, cudaStream_t);
template void launch_weight(const WeightJob<c10::Half>&, bool, cudaStream_t);
template void launch_weight(const WeightJob<c10::BFloat16>&, bool, cudaStream_t);

}  // namespace lockstep::sparse::cuda
