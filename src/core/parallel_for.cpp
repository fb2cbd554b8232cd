// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/parallel_for.h"

#include <ATen/Parallel.h>

// The one file with OpenMP. On all of them the flag would reach every program that includes a header of ours.
namespace lockstep {

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  at::parallel_for(begin, end, grain, body);
}

}  // namespace lockstep
