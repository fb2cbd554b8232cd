// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/flat.h"

namespace lockstep {
namespace {

constexpr size_t page_bytes = 4096;

at::Tensor make_row(const FlatRow& row) {
  const auto options = at::TensorOptions().dtype(row.dtype).device(row.device);
  const size_t bytes = static_cast<size_t>(row.numel) * c10::elementSize(row.dtype);
  // libtorch's own alignment is 64 bytes on CPU, 512 on CUDA.
  if (!row.device.is_cpu() || bytes < page_bytes) return at::zeros({row.numel}, options);
  void* memory = std::aligned_alloc(page_bytes, (bytes + page_bytes - 1) / page_bytes * page_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return at::from_blob(
      memory, {row.numel}, [](void* pointer) { std::free(pointer); }, options);
}

}  // namespace

FlatBuffer::FlatBuffer(FlatLayout layout) : layout_(std::move(layout)) {
  for (const FlatRow& row : layout_.rows()) rows_.push_back(make_row(row));
  for (int64_t tensor = 0; tensor < layout_.size(); ++tensor) {
    const FlatSlot& slot = layout_.slot(tensor);
    const at::Tensor& memory = row(slot.row);
    // Over the same storage, but not a view in autograd's sense.
    views_.push_back(at::empty({0}, memory.options()).set_(memory.storage(), slot.offset, slot.sizes, slot.strides));
  }
}

FlatBuffer FlatBuffer::flatten(std::span<const at::Tensor> tensors, at::MemoryFormat format) {
  FlatBuffer buffer(FlatLayout(tensors, format));
  buffer.copy_from(tensors);
  return buffer;
}

at::Tensor FlatBuffer::row(const FlatChunk& chunk) const {
  return row(chunk.row).narrow(0, chunk.begin, chunk.end - chunk.begin);
}

void FlatBuffer::copy_from(std::span<const at::Tensor> tensors) const {
  check("FlatBuffer::copy_from", tensors, /*same_type=*/false);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < views_.size(); ++i) views_[i].copy_(tensors[i]);
}

void FlatBuffer::copy_to(std::span<const at::Tensor> tensors) const {
  check("FlatBuffer::copy_to", tensors, /*same_type=*/false);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < views_.size(); ++i) tensors[i].copy_(views_[i]);
}

void FlatBuffer::point_data(std::span<const at::Tensor> parameters) const {
  check("FlatBuffer::point_data", parameters, /*same_type=*/true);
  for (size_t i = 0; i < views_.size(); ++i) parameters[i].set_data(views_[i]);
}

void FlatBuffer::point_grads(std::span<const at::Tensor> parameters) const {
  check("FlatBuffer::point_grads", parameters, /*same_type=*/true);
  for (size_t i = 0; i < views_.size(); ++i) parameters[i].mutable_grad() = views_[i];
}

void FlatBuffer::zero() const {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& row : rows_) row.zero_();
}

void FlatBuffer::check(const char* operation, std::span<const at::Tensor> tensors, bool same_type) const {
  require(tensors.size() == views_.size(), operation, "got ", tensors.size(), " tensors, expected ", views_.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor &tensor = tensors[i], &view = views_[i];
    require(tensor.defined(), operation, "tensor ", i, " is undefined");
    require(tensor.sizes() == view.sizes(), operation, "tensor ", i, " has shape ", tensor.sizes(), ", expected ",
            view.sizes());
    if (!same_type) continue;
    require(tensor.scalar_type() == view.scalar_type(), operation, "tensor ", i, " has dtype ",
            c10::getDtypeNames(tensor.scalar_type()).first, ", expected ",
            c10::getDtypeNames(view.scalar_type()).first);
    require(tensor.device() == view.device(), operation, "tensor ", i, " is on ", tensor.device().str(), ", expected ",
            view.device().str());
  }
}

}  // namespace lockstep
