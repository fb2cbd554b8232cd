// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDAStream.h>

namespace at::cuda {

inline c10::cuda::CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) {
  return c10::cuda::current_stream();
}

}  // namespace at::cuda
