// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/base/detail/parallel_for.h"
#include "lockstep/numerics/reduce.h"

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

/// Adds pieces [0, count) of `size` values into the first one, in the canonical tree's order.
template <class T>
void add_as_tree(T* pieces, int64_t count, int64_t size) {
  if (count < 2) return;
  std::vector<const std::byte*> sources;
  for (int64_t i = 0; i < count; ++i) sources.push_back(reinterpret_cast<const std::byte*>(pieces + i * size));
  auto* const into = reinterpret_cast<std::byte*>(pieces);
  reduce(TreeProgram::of_leaves(count), ReduceOp::sum, c10::CppTypeToScalarType<T>::value, sources, {&into, 1}, size);
}

inline int64_t row_of(std::span<const int32_t> order, int64_t position) {
  return order.empty() ? position : order[position];
}

}  // namespace lockstep::sparse::cpu
