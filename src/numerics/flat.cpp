// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/detail/flat.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <unordered_set>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t page_bytes = 4096;

int64_t aligned_numel(int64_t numel, at::ScalarType dtype) {
  const int64_t step = flat_alignment_bytes / static_cast<int64_t>(c10::elementSize(dtype));
  return (numel + step - 1) / step * step;
}

std::vector<int64_t> row_major_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    strides[axis] = next;
    next *= std::max<int64_t>(sizes[axis], 1);
  }
  return strides;
}

std::vector<int64_t> strides_for(const at::Tensor& tensor, at::MemoryFormat format) {
  if (format == at::MemoryFormat::Preserve && tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  if (format == at::MemoryFormat::ChannelsLast && tensor.dim() == 4)
    return c10::get_channels_last_strides_2d(tensor.sizes());
  if (format == at::MemoryFormat::ChannelsLast && tensor.dim() == 5)
    return c10::get_channels_last_strides_3d(tensor.sizes());
  return row_major_strides(tensor.sizes());
}

int64_t row_of(std::vector<FlatRow>& rows, const at::Tensor& tensor) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const FlatRow& row) {
    return row.dtype == tensor.scalar_type() && row.device == tensor.device();
  });
  if (found != rows.end()) return found - rows.begin();
  rows.push_back({tensor.scalar_type(), tensor.device(), 0});
  return static_cast<int64_t>(rows.size()) - 1;
}

}  // namespace

at::Tensor untouched_zeros(int64_t numel, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(numel) * options.dtype().itemsize();
  // libtorch's own alignment is 64 bytes on CPU, 512 on CUDA.
  if (!options.device().is_cpu() || bytes < page_bytes) return at::zeros({numel}, options);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return at::from_blob(
      memory, {numel}, [bytes](void* pointer) { munmap(pointer, bytes); }, options);
}

void give_back_memory(const at::Tensor& part) {
  const auto begin = reinterpret_cast<uintptr_t>(part.const_data_ptr()), end = begin + part.nbytes();
  const uintptr_t first = (begin + page_bytes - 1) / page_bytes * page_bytes, last = end / page_bytes * page_bytes;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

at::Tensor kept_copy(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous() && tensor.storage().use_count() == 1) return tensor;
  return tensor.detach().to(at::kCPU, tensor.scalar_type(), false, /*copy=*/true).contiguous();
}

FlatLayout::FlatLayout(std::span<const at::Tensor> tensors, at::MemoryFormat format) {
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors) {
    const size_t index = slots_.size();
    require(tensor.defined(), "FlatLayout", "tensor ", index, " is undefined");
    require(tensor.layout() == at::kStrided, "FlatLayout", "tensor ", index, " has layout ", tensor.layout(),
            ", expected a strided one");
    require(seen.insert(tensor.unsafeGetTensorImpl()).second, "FlatLayout", "tensor ", index,
            " was given before, expected every tensor once");
    const int64_t index_of_row = row_of(rows_, tensor);
    FlatRow& row = rows_[static_cast<size_t>(index_of_row)];
    slots_.push_back({index_of_row, row.numel, tensor.numel(), tensor.sizes().vec(), strides_for(tensor, format)});
    row.numel += aligned_numel(tensor.numel(), row.dtype);
  }
}

FlatBuffer::FlatBuffer(FlatLayout layout) : layout_(std::move(layout)) {
  for (const FlatRow& row : layout_.rows())
    rows_.push_back(untouched_zeros(row.numel, at::TensorOptions().dtype(row.dtype).device(row.device)));
  for (int64_t tensor = 0; tensor < layout_.size(); ++tensor) {
    const FlatSlot& slot = layout_.slot(tensor);
    const at::Tensor& memory = row(slot.row);
    // Over the same storage, but not a view in autograd's sense.
    views_.push_back(at::empty({0}, memory.options()).set_(memory.storage(), slot.offset, slot.sizes, slot.strides));
  }
}

FlatBuffer FlatBuffer::flatten(std::span<const at::Tensor> tensors, at::MemoryFormat format) {
  FlatBuffer buffer(FlatLayout(tensors, format));
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].unsafeGetTensorImpl()->storage_initialized()) buffer.views_[i].copy_(tensors[i]);
  return buffer;
}

void FlatBuffer::point_data(std::span<const at::Tensor> parameters) const {
  constexpr const char* operation = "FlatBuffer::point_data";
  require(parameters.size() == views_.size(), operation, "got ", parameters.size(), " tensors, expected ",
          views_.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor &tensor = parameters[i], &view = views_[i];
    require(tensor.defined(), operation, "tensor ", i, " is undefined");
    require(tensor.sizes() == view.sizes(), operation, "tensor ", i, " has shape ", tensor.sizes(), ", expected ",
            view.sizes());
    require(tensor.scalar_type() == view.scalar_type(), operation, "tensor ", i, " has dtype ",
            c10::getDtypeNames(tensor.scalar_type()).first, ", expected ",
            c10::getDtypeNames(view.scalar_type()).first);
    require(tensor.device() == view.device(), operation, "tensor ", i, " is on ", tensor.device().str(), ", expected ",
            view.device().str());
  }
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].set_data(views_[i]);
}

}  // namespace lockstep
