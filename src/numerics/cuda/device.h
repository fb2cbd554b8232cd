// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/numerics/device.h"

namespace lockstep::detail {

extern const bool has_cuda;
/// Those that this build has code for, up to the first that it has none for.
std::vector<CudaDeviceInfo> find_cuda_devices();
/// The UUID of a device that is there: "GPU-8f2b5a51-...".
std::string cuda_identity(int index);
/// What parse_devices chooses from here.
Inventory inventory_of_this_host();
/// "13.0" and "9.19.0"; empty without CUDA.
std::string cuda_runtime_version();
std::string cudnn_version();

}  // namespace lockstep::detail
