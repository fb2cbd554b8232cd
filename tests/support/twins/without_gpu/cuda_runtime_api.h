// SPDX-License-Identifier: Apache-2.0
// The little of CUDA that src/sparse/cuda/*.cpp sees, as a device that is the CPU: with this folder in front of the
// include path those sources build and run where no GPU is, on tensors in plain memory.
#pragma once

using cudaStream_t = void*;
