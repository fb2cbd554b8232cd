// SPDX-License-Identifier: Apache-2.0
// Stands in for generator.cpp in a build without CUDA.
#include "lockstep/base/error.h"
#include "numerics/cuda/generator.h"

namespace lockstep::detail {

at::Generator make_cuda_generator(at::Device device) {
  fail("keyed_generator", "device is ", device.str(), ", expected cpu: this build has no CUDA");
}

void rekey_cuda(const at::Generator&, RandomKey) {
  LOCKSTEP_ASSERT(!"a CUDA generator in a build without CUDA");
}

}  // namespace lockstep::detail
