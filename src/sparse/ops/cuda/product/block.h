// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sparse/cuda/portable.h"

// A block of threads that share memory works in phases: in each, every thread does its part of something, and none
// begins the next one before all have ended this one. Written so, a kernel's algorithm runs on a CPU as well: one
// thread's part after the other's.

namespace lockstep::sparse::cuda {

/// One thread of a block on a GPU.
template <class Registers>
struct DeviceBlock {
  Registers registers;

  template <class Part>
  LOCKSTEP_HOST_DEVICE void phase([[maybe_unused]] const Part& part) {
#ifdef __CUDA_ARCH__
    part(static_cast<int>(threadIdx.x), registers);
    __syncthreads();
#endif
  }
};

/// A whole block on a CPU.
template <class Registers>
struct HostBlock {
  std::vector<Registers> registers;

  explicit HostBlock(int threads) : registers(threads) {}
  template <class Part>
  void phase(const Part& part) {
    for (size_t thread = 0; thread < registers.size(); ++thread) part(static_cast<int>(thread), registers[thread]);
  }
};

}  // namespace lockstep::sparse::cuda
