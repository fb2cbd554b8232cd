// SPDX-License-Identifier: Apache-2.0
#include "support/sgemm.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <time.h>

#include <algorithm>

namespace lockstep::bench {

double work_seconds() {
  timespec now;
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double sgemm_peak() {
  const int64_t n = 1024;
  const at::Tensor a = at::randn({n, n}), b = at::randn({n, n});
  at::Tensor c = at::mm(a, b);
  double best = 1e9;
  for (int i = 0; i < 8; ++i) {
    const double start = work_seconds();
    at::mm_out(c, a, b);
    best = std::min(best, work_seconds() - start);
  }
  return 2e-9 * static_cast<double>(n * n * n) / best;
}

}  // namespace lockstep::bench
