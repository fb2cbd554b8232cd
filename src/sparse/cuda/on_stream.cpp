// SPDX-License-Identifier: Apache-2.0
#include "sparse/cuda/on_stream.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "sparse/keys.h"

namespace lockstep::sparse::cuda {

OnStream::OnStream(std::vector<at::Tensor> tensors)
    : tensors_(std::move(tensors)), stream_(at::cuda::getCurrentCUDAStream()) {
  filled_.record(stream_);
}

void OnStream::use() const {
  const auto current = at::cuda::getCurrentCUDAStream(stream_.device_index());
  if (current == stream_) return;
  filled_.block(current);
  for (const at::Tensor& tensor : tensors_)
    if (tensor.defined()) c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), current);
}

template <class T>
at::Tensor upload(const T* data, int64_t count, at::ScalarType type, at::Device device) {
  const int64_t size = count * static_cast<int64_t>(sizeof(T) / c10::elementSize(type));
  // Copies from pageable memory are over when the call returns.
  return at::from_blob(const_cast<T*>(data), {size}, type).to(device, type, /*non_blocking=*/false, /*copy=*/true);
}
template at::Tensor upload(const int32_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const int64_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const uint8_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const uint64_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const Key128*, int64_t, at::ScalarType, at::Device);

}  // namespace lockstep::sparse::cuda
