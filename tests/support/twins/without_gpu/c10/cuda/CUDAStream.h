// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

namespace c10::cuda {

/// Streams are numbers here, so that tests can change them.
struct CUDAStream {
  int number = 0;

  DeviceIndex device_index() const { return -1; }
  bool operator==(const CUDAStream&) const = default;
  operator cudaStream_t() const { return nullptr; }
};

inline CUDAStream& current_stream() {
  static CUDAStream stream;
  return stream;
}

}  // namespace c10::cuda
