// SPDX-License-Identifier: Apache-2.0
#include "norm/cuda/parts.h"

#include "lockstep/numerics/detail/launch.cuh"

namespace lockstep::norm::cuda {

template <class Part>
void launch(int64_t count, cudaStream_t stream, const Part& part) {
  portable::for_each_on_gpu(count, stream, part);
}

LOCKSTEP_NORM_LAUNCHES;

}  // namespace lockstep::norm::cuda
