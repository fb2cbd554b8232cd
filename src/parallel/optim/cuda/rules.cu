// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAStream.h>

#include "lockstep/numerics/detail/launch.cuh"

namespace lockstep::parallel::on_gpu {

template <class Part>
void launch(int64_t count, const Part& part) {
  portable::for_each_on_gpu(count, c10::cuda::getCurrentCUDAStream(), part);
}

}  // namespace lockstep::parallel::on_gpu

#include "parallel/optim/cuda/rows.h"

namespace lockstep::parallel::on_gpu {

bool batches(c10::Device device) {
  return device.is_cuda();
}

}  // namespace lockstep::parallel::on_gpu
