// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace lockstep {

/// Calls body(from, to) for pieces of [begin, end) of at least `grain`, on the calling thread's intra-op threads
/// (at::set_num_threads). An exception of a piece is rethrown.
///
/// Use it instead of at::parallel_for, which is a plain loop in every file that is compiled without OpenMP.
void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body);

}  // namespace lockstep
