// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/parallel_for.h"

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/detail/guarded.h"

#if defined(__SANITIZE_THREAD__)
#define LOCKSTEP_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCKSTEP_THREAD_SANITIZER
#endif
#endif
#ifdef LOCKSTEP_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

// What GCC makes of "omp parallel", called by name: with -fopenmp another compiler would bring a runtime of its own,
// whose threads at::set_num_threads does not reach. libtorch stands on the same two.
extern "C" {
void GOMP_parallel(void (*piece)(void*), void* loop, unsigned threads, unsigned flags);
int omp_get_num_threads();
int omp_get_thread_num();
}

namespace lockstep {
namespace {

struct Loop {
  int64_t begin, end, grain;
  c10::function_ref<void(int64_t, int64_t)> body;
  Mutex mutex;
  std::exception_ptr error;  // the first one; mutex guards it while pieces run
};

void run(Loop& loop, int64_t from, int64_t to, int thread) {
  const at::internal::ThreadIdGuard id(thread);
  const c10::ParallelGuard inside(true);
  loop.body(from, to);
}

/// Pieces as at::parallel_for cuts them: one a thread, of at least a grain.
void run_piece(Loop& loop) {
  const int64_t most = (loop.end - loop.begin + loop.grain - 1) / loop.grain;
  const int64_t threads = std::min<int64_t>(omp_get_num_threads(), most);
  const int64_t size = (loop.end - loop.begin + threads - 1) / threads;
  const int thread = omp_get_thread_num();
  const int64_t from = loop.begin + thread * size;
  if (from >= loop.end) return;
  try {
    run(loop, from, std::min(from + size, loop.end), thread);
  } catch (...) {
    const Lock lock(loop.mutex);
    if (!loop.error) loop.error = std::current_exception();
  }
}

// ThreadSanitizer does not see the fork and join of libgomp: what comes before the loop comes before each piece, and
// each piece before what follows the loop.
#ifdef LOCKSTEP_THREAD_SANITIZER
void acquire(void* loop) {
  __tsan_acquire(loop);
}
void release(void* loop) {
  __tsan_release(loop);
}
#else
void acquire(void*) {}
void release(void*) {}
#endif

extern "C" void lockstep_parallel_piece(void* loop) {
  acquire(loop);
  run_piece(*static_cast<Loop*>(loop));
  release(loop);
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  if (begin >= end) return;
  Loop loop{begin, end, std::max<int64_t>(grain, 1), body, {}, {}};
  at::internal::lazy_init_num_threads();
  const int64_t size = end - begin;
  if (size <= loop.grain || at::in_parallel_region() || at::get_num_threads() == 1) {
    run(loop, begin, end, 0);
    return;
  }
  release(&loop);
  GOMP_parallel(lockstep_parallel_piece, &loop, 0, 0);
  acquire(&loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace lockstep
