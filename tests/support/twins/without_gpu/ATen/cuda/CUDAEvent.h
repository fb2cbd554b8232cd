// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDAStream.h>

namespace at::cuda {

/// Counts who waits for it.
struct CUDAEvent {
  static int& waits() {
    static int count = 0;
    return count;
  }
  void record(const c10::cuda::CUDAStream&) {}
  void block(const c10::cuda::CUDAStream&) { ++waits(); }
};

}  // namespace at::cuda
