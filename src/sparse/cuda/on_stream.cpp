// SPDX-License-Identifier: Apache-2.0
#include "sparse/cuda/on_stream.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstring>

#include "lockstep/points/detail/sorted_keys.h"

namespace lockstep::sparse::cuda {

namespace {

// The tensors', whatever the current device is; -1, the current one, where there are none.
c10::DeviceIndex device_of(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) return static_cast<c10::DeviceIndex>(tensor.get_device());
  return -1;
}

}  // namespace

OnStream::OnStream(std::vector<at::Tensor> tensors)
    : tensors_(std::move(tensors)), stream_(at::cuda::getCurrentCUDAStream(device_of(tensors_))) {
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
  // Of pageable memory a copy would wait for all that the stream holds. Pinned memory is libtorch's, which does not
  // use it again before the copy is over.
  const at::Tensor staged = at::empty({size}, at::TensorOptions(type).pinned_memory(device.is_cuda()));
  if (count > 0) std::memcpy(staged.mutable_data_ptr(), data, count * sizeof(T));
  return staged.to(device, type, /*non_blocking=*/true, /*copy=*/true);
}
template at::Tensor upload(const int32_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const int64_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const uint8_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const uint64_t*, int64_t, at::ScalarType, at::Device);
template at::Tensor upload(const points::Key128*, int64_t, at::ScalarType, at::Device);

}  // namespace lockstep::sparse::cuda
