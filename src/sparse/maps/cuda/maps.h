// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "sparse/maps/cuda/map_parts.h"

namespace lockstep::sparse::cuda {

/// Runs part(0), ..., part(count - 1) on the GPU, for the parts of map_parts.h and both widths of keys.
template <class Part>
void launch_map(int64_t count, cudaStream_t stream, const Part& part);

/// All of them, to be instantiated beside the definition of launch_map().
#define LOCKSTEP_SPARSE_MAP_LAUNCH(...) template void launch_map(int64_t, cudaStream_t, const __VA_ARGS__&)
#define LOCKSTEP_SPARSE_MAP_LAUNCHES_OF(Key)                  \
  LOCKSTEP_SPARSE_MAP_LAUNCH(PackRows<Key>);                  \
  LOCKSTEP_SPARSE_MAP_LAUNCH(RoundKeys<uint64_t, Key>);       \
  LOCKSTEP_SPARSE_MAP_LAUNCH(RoundKeys<points::Key128, Key>); \
  LOCKSTEP_SPARSE_MAP_LAUNCH(TakeWord<Key>);                  \
  LOCKSTEP_SPARSE_MAP_LAUNCH(MarkFirst<Key>);                 \
  LOCKSTEP_SPARSE_MAP_LAUNCH(CollectGroups<Key>);             \
  LOCKSTEP_SPARSE_MAP_LAUNCH(UnpackKeys<Key>);                \
  LOCKSTEP_SPARSE_MAP_LAUNCH(FindNeighbours<Key>)
#define LOCKSTEP_SPARSE_MAP_LAUNCHES               \
  LOCKSTEP_SPARSE_MAP_LAUNCHES_OF(uint64_t);       \
  LOCKSTEP_SPARSE_MAP_LAUNCHES_OF(points::Key128); \
  LOCKSTEP_SPARSE_MAP_LAUNCH(CountUp);             \
  LOCKSTEP_SPARSE_MAP_LAUNCH(NumberRows);          \
  LOCKSTEP_SPARSE_MAP_LAUNCH(MaskPositions);       \
  LOCKSTEP_SPARSE_MAP_LAUNCH(ArrangeTable);        \
  LOCKSTEP_SPARSE_MAP_LAUNCH(MaskTiles)

/// Sorts by the low `bits` of words; equal ones keep their order. Scratch memory: sort_bytes(count).
struct SortJob {
  const uint64_t* words;
  const int32_t* values;
  uint64_t* sorted_words;
  int32_t* sorted_values;
  int count, bits;
};
size_t sort_bytes(int count);
void launch_sort(const SortJob& job, void* scratch, size_t bytes, cudaStream_t stream);

/// sums[i] = values[0] + ... + values[i]. Scratch memory: sum_bytes(count).
size_t sum_bytes(int count);
void launch_running_sum(const int32_t* values, int32_t* sums, int count, void* scratch, size_t bytes,
                        cudaStream_t stream);

}  // namespace lockstep::sparse::cuda
