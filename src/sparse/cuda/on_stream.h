// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

namespace lockstep::sparse::cuda {

/// Tensors that one stream has filled and any stream may read.
class OnStream {
 public:
  /// Call it when all that fills the tensors is on the current stream of their device.
  explicit OnStream(std::vector<at::Tensor> tensors);
  /// Makes the current stream wait for them, and keeps their memory until it has done with them.
  void use() const;

 private:
  std::vector<at::Tensor> tensors_;
  c10::cuda::CUDAStream stream_;
  mutable at::cuda::CUDAEvent filled_;
};

/// A copy on a device of what the CPU holds, made by the current stream; `data` may go when this returns.
template <class T>
at::Tensor upload(const T* data, int64_t count, at::ScalarType type, at::Device device);

}  // namespace lockstep::sparse::cuda
