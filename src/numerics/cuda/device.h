// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/numerics/device.h"

namespace lockstep::detail {

extern const bool has_cuda;
std::vector<CudaDeviceInfo> find_cuda_devices();
/// "13.0" and "9.19.0"; empty without CUDA.
std::string cuda_runtime_version();
std::string cudnn_version();

}  // namespace lockstep::detail
