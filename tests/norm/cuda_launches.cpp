// SPDX-License-Identifier: Apache-2.0
// What src/norm/cuda/parts.cu does, on the CPU: one thread's work after the other's. For the tests of the CUDA twins
// without a GPU (tests/sparse).
#include "norm/cuda/parts.h"

namespace lockstep::norm::cuda {

template <class Part>
void launch(int64_t count, cudaStream_t, const Part& part) {
  for (int64_t i = 0; i < count; ++i) part(i);
}
LOCKSTEP_NORM_LAUNCHES;

}  // namespace lockstep::norm::cuda
