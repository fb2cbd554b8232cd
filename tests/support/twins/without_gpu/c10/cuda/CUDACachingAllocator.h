// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda::CUDACachingAllocator {

inline int& recorded() {
  static int count = 0;
  return count;
}
inline void recordStream(const DataPtr&, CUDAStream) {
  ++recorded();
}

}  // namespace c10::cuda::CUDACachingAllocator
