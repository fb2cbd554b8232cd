// SPDX-License-Identifier: Apache-2.0
// What optim/cuda/rules.cu does, on the CPU: one thread's work after the other's.
#include "optim/without_gpu.h"

#include <cstdint>

namespace lockstep::parallel::on_gpu {

template <class Part>
void launch(int64_t count, const Part& part) {
  ++test::launches;
  for (int64_t i = 0; i < count; ++i) part(i);
}

}  // namespace lockstep::parallel::on_gpu

#include "parallel/optim/cuda/rows.h"

namespace lockstep::parallel {

bool test::is_gpu = false;
int64_t test::launches = 0;

bool on_gpu::batches(c10::Device) {
  return test::is_gpu;
}

}  // namespace lockstep::parallel
