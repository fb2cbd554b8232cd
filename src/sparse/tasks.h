// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/base/detail/parallel_for.h"

namespace lockstep::sparse::cpu {

/// Sums of float16 and bfloat16 are float32.
template <class Storage>
using Compute = std::conditional_t<std::is_same_v<Storage, double>, double, float>;

/// Calls work(task, scratch) for all tasks, on whichever thread is free. make_scratch() is called once a thread. What a
/// task computes must depend on its number alone.
template <class MakeScratch, class Work>
void for_each_task(int64_t tasks, const MakeScratch& make_scratch, const Work& work) {
  std::atomic<int64_t> next{0};
  parallel_for(0, std::min<int64_t>(at::get_num_threads(), tasks), 1, [&](int64_t, int64_t) {
    auto scratch = make_scratch();
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task, scratch);
  });
}

/// Adds pieces [0, count) of `size` values into the first one, in the order of a balanced tree.
template <class T>
void add_as_tree(T* pieces, int64_t count, int64_t size) {
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t i = 0; i + step < count; i += 2 * step) {
      T* into = pieces + i * size;
      const T* from = pieces + (i + step) * size;
      for (int64_t j = 0; j < size; ++j) into[j] += from[j];
    }
}

inline int64_t row_of(std::span<const int32_t> order, int64_t position) {
  return order.empty() ? position : order[position];
}

}  // namespace lockstep::sparse::cpu
