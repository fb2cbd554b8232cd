// SPDX-License-Identifier: Apache-2.0
// What the .cu files of src/sparse/cuda do, on the CPU: the same parts and the same tiles, one thread's work after the
// other's. The sort and the running sum are CUB's there and the standard library's here.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "sparse/maps/cuda/maps.h"
#include "sparse/ops/cuda/convolution.h"
#include "sparse/ops/cuda/parts.h"
#include "sparse/ops/cuda/product/tensor_product.cuh"

namespace lockstep::sparse::cuda {

template <class Part>
void launch(int64_t count, cudaStream_t, const Part& part) {
  for (int64_t i = 0; i < count; ++i) part(i);
}
LOCKSTEP_SPARSE_LAUNCHES;

template <class Part>
void launch_map(int64_t count, cudaStream_t, const Part& part) {
  for (int64_t i = 0; i < count; ++i) part(i);
}
LOCKSTEP_SPARSE_MAP_LAUNCHES;

size_t sort_bytes(int) {
  return 1;
}
void launch_sort(const SortJob& job, void*, size_t, cudaStream_t) {
  const uint64_t mask = job.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << job.bits) - 1;
  std::vector<int> places(job.count);
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](int a, int b) { return (job.words[a] & mask) < (job.words[b] & mask); });
  for (int i = 0; i < job.count; ++i) {
    job.sorted_words[i] = job.words[places[i]];
    job.sorted_values[i] = job.values[places[i]];
  }
}

size_t sum_bytes(int) {
  return 1;
}
void launch_running_sum(const int32_t* values, int32_t* sums, int count, void*, size_t, cudaStream_t) {
  std::partial_sum(values, values + count, sums);
}

namespace {

// The blocks of a grid one after the other.
template <class Tile, class Job>
void run_blocks(int64_t count, const Job& job) {
  const auto shared = std::make_unique<typename Tile::Shared>();
  HostBlock<typename Tile::Registers> block(kTileThreads);
  for (int64_t number = 0; number < count; ++number) Tile::run(block, *shared, job, number);
}

template <template <class, class, int, int> class Tile, class Storage, class Job>
void run_job(const Job& job, int64_t channels, bool tf32) {
  choose_product<Storage>(channels, tf32, [&](auto product, auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    if (job.moves_whole())
      run_blocks<Tile<Storage, decltype(product), kColumns, kWhole<Storage>>>(job.blocks(kColumns), job);
    else
      run_blocks<Tile<Storage, decltype(product), kColumns, 1>>(job.blocks(kColumns), job);
  });
}

}  // namespace

template <class Storage>
void launch_forward(const ForwardJob<Storage>& job, bool tf32, cudaStream_t) {
  run_job<ForwardTile, Storage>(job, job.to, tf32);
}

template <class Storage>
void launch_weight(const WeightJob<Storage>& job, bool tf32, cudaStream_t) {
  run_job<WeightTile, Storage>(job, job.out, tf32);
}

#define CONVOLUTIONS(T)                                                   \
  template void launch_forward(const ForwardJob<T>&, bool, cudaStream_t); \
  template void launch_weight(const WeightJob<T>&, bool, cudaStream_t)
CONVOLUTIONS(float);
CONVOLUTIONS(double);
CONVOLUTIONS(c10::Half);
CONVOLUTIONS(c10::BFloat16);

}  // namespace lockstep::sparse::cuda
