// SPDX-License-Identifier: Apache-2.0
#include "sparse/maps/cuda/maps.h"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "lockstep/numerics/detail/launch.cuh"

namespace lockstep::sparse::cuda {

template <class Part>
void launch_map(int64_t count, cudaStream_t stream, const Part& part) {
  portable::for_each_on_gpu(count, stream, part);
}

LOCKSTEP_SPARSE_MAP_LAUNCHES;

size_t sort_bytes(int count) {
  size_t bytes = 0;
  C10_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, static_cast<const uint64_t*>(nullptr),
                                                 static_cast<uint64_t*>(nullptr), static_cast<const int32_t*>(nullptr),
                                                 static_cast<int32_t*>(nullptr), count));
  return bytes;
}

void launch_sort(const SortJob& job, void* scratch, size_t bytes, cudaStream_t stream) {
  C10_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, bytes, job.words, job.sorted_words, job.values,
                                                 job.sorted_values, job.count, 0, job.bits, stream));
}

size_t sum_bytes(int count) {
  size_t bytes = 0;
  C10_CUDA_CHECK(cub::DeviceScan::InclusiveSum(nullptr, bytes, static_cast<const int32_t*>(nullptr),
                                               static_cast<int32_t*>(nullptr), count));
  return bytes;
}

void launch_running_sum(const int32_t* values, int32_t* sums, int count, void* scratch, size_t bytes,
                        cudaStream_t stream) {
  C10_CUDA_CHECK(cub::DeviceScan::InclusiveSum(scratch, bytes, values, sums, count, stream));
}

}  // namespace lockstep::sparse::cuda
