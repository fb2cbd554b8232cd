// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <span>
#include <vector>

/// Many tensors as views in one: what is done to all parameters (reduce, update, send, save) is done to one long row.
///
/// Everything about the layout follows from the shapes, dtypes and devices alone, so that all replicas, processes and
/// runs of a recipe agree on it.
namespace lockstep {

/// Every tensor starts at a multiple of this: MKL promises the same bits only for the same alignment.
inline constexpr int64_t flat_alignment_bytes = 64;

/// [numel] zeros. On CPU memory of a page and more is taken from the system page by page, as it is written to, and
/// begins with a page.
at::Tensor untouched_zeros(int64_t numel, const at::TensorOptions& options);
/// The pages that lie in a dense part of such memory go back to the system: what is read there next is zero.
void give_back_memory(const at::Tensor& part);

/// The values on CPU, in memory that nobody else writes to: a tensor that alone has such memory, as one that came from
/// another process, is given back as it is, and others are copied.
at::Tensor kept_copy(const at::Tensor& tensor);

/// Where one tensor lies: at elements [offset, offset + numel) of row `row`.
struct FlatSlot {
  int64_t row = 0;
  int64_t offset = 0;
  int64_t numel = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  bool operator==(const FlatSlot&) const = default;
};

/// One row of memory: all tensors of one dtype on one device, in their given order, each padded to 64 bytes.
struct FlatRow {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t numel = 0;  // padding included

  bool operator==(const FlatRow&) const = default;
};

class FlatLayout {
 public:
  FlatLayout() = default;

  /// The layout of these tensors; any shapes (empty and scalar too), dtypes and devices. With MemoryFormat::Contiguous
  /// every view is row-major; with ChannelsLast the 4-d and 5-d ones are channels-last; with Preserve each keeps
  /// the strides of its tensor where that is dense. Throws Error for an undefined or sparse tensor, or one given twice.
  explicit FlatLayout(std::span<const at::Tensor> tensors, at::MemoryFormat format = at::MemoryFormat::Contiguous);

  int64_t size() const { return static_cast<int64_t>(slots_.size()); }
  const FlatSlot& slot(int64_t tensor) const { return slots_.at(static_cast<size_t>(tensor)); }
  std::span<const FlatRow> rows() const { return rows_; }

  bool operator==(const FlatLayout&) const = default;

 private:
  std::vector<FlatSlot> slots_;
  std::vector<FlatRow> rows_;
};

/// Memory with a layout: the weights that all replicas share. Copies share the memory, as copies of a tensor do.
///
/// Views do not know of each other or of the row: they are no views in autograd's sense, and each counts its own
/// versions. So a leaf stays a leaf, and writing to the row never makes autograd complain of a changed tensor: who
/// writes must know that no backward pass still needs the old values.
class FlatBuffer {
 public:
  FlatBuffer() = default;

  /// The tensors' values in a layout of their own; of those that have no memory yet the places stay untouched. On CPU
  /// the row starts at a multiple of 64 bytes, of a page where it is longer than one.
  static FlatBuffer flatten(std::span<const at::Tensor> tensors,
                            at::MemoryFormat format = at::MemoryFormat::Contiguous);

  const FlatLayout& layout() const { return layout_; }

  /// Row `index`, [numel], padding included.
  const at::Tensor& row(int64_t index = 0) const { return rows_.at(static_cast<size_t>(index)); }
  /// The tensor at its place, with its sizes and strides. The same object at every call.
  const at::Tensor& view(int64_t tensor) const { return views_.at(static_cast<size_t>(tensor)); }

  /// Makes each parameter's data the view, aliasing this memory; the values that were there are let go. The parameter
  /// stays the leaf it is. Throws Error when number, shape, dtype or device differ.
  void point_data(std::span<const at::Tensor> parameters) const;

 private:
  explicit FlatBuffer(FlatLayout layout);

  FlatLayout layout_;
  std::vector<at::Tensor> rows_;
  std::vector<at::Tensor> views_;
};

}  // namespace lockstep
