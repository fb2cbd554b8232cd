// SPDX-License-Identifier: Apache-2.0
#include "numerics/cuda/generator.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>

namespace lockstep::detail {

at::Generator make_cuda_generator(at::Device device) {
  return at::cuda::detail::createCUDAGenerator(device.has_index() ? device.index() : -1);
}

// CUDA's generator is Philox too, with one 64-bit seed: the key is hashed into it.
void rekey_cuda(const at::Generator& generator, RandomKey key) {
  auto* cuda = generator.get<at::CUDAGeneratorImpl>();
  const std::lock_guard lock(cuda->mutex_);
  cuda->set_current_seed(key.fold(0).seed);
  cuda->set_philox_offset_per_thread(0);
}

}  // namespace lockstep::detail
