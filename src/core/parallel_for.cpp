// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/parallel_for.h"

#include <ATen/Parallel.h>

#ifdef LOCKSTEP_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

// The one file with OpenMP. On all of them the flag would reach every program that includes a header of ours.
namespace lockstep {

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
#ifdef LOCKSTEP_THREAD_SANITIZER
  // ThreadSanitizer does not see the fork and join of libgomp: what comes before the loop comes before each piece, and
  // each piece before what follows the loop.
  char fork = 0, join = 0;
  __tsan_release(&fork);
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) {
    __tsan_acquire(&fork);
    body(from, to);
    __tsan_release(&join);
  });
  __tsan_acquire(&join);
#else
  at::parallel_for(begin, end, grain, body);
#endif
}

}  // namespace lockstep
