// SPDX-License-Identifier: Apache-2.0
// Stands in for device.cpp in a build without CUDA.
#include "numerics/cuda/device.h"

namespace lockstep::detail {

const bool has_cuda = false;
std::vector<CudaDeviceInfo> find_cuda_devices() {
  return {};
}
std::string cuda_identity(int) {
  return {};
}
std::string cuda_runtime_version() {
  return {};
}
std::string cudnn_version() {
  return {};
}

}  // namespace lockstep::detail
