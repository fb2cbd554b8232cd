// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <cstdint>
#include <span>
#include <vector>

/// Many tensors as views in one: what is done to all parameters (reduce, update, send, save) is done to one long row.
///
/// Everything about the layout follows from the shapes, dtypes and devices alone, so that all replicas, processes and
/// runs of a recipe agree on it: their chunks end at the same element and their vector tails fall in the same places.
namespace lockstep {

/// Every tensor starts at a multiple of this, as does every chunk: MKL promises the same bits only for the same
/// alignment.
inline constexpr int64_t flat_alignment_bytes = 64;

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

/// Elements [begin, end) of row `row`, and the tensors that have elements there, in ascending order.
struct FlatChunk {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int64_t> tensors;
};

/// A way to cut a layout.
struct FlatChunks {
  std::vector<FlatChunk> chunks;
  /// For each tensor the chunks that hold elements of it, in ascending order; none for an empty tensor.
  std::vector<std::vector<int64_t>> of_tensor;
};

/// The order of chunks. Gradients become ready from the last parameter to the first: with `reverse`, chunk 0 holds the
/// last tensors and is complete first.
enum class ChunkOrder { forward, reverse };

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

  /// Cuts every row into chunks of `bytes`, rounded up to a multiple of 64; the remainder is the chunk that comes last
  /// in the order. A chunk holds parts of tensors: a large tensor spans several. Throws Error when bytes < 1.
  FlatChunks chunks(int64_t bytes, ChunkOrder order = ChunkOrder::reverse) const;

  bool operator==(const FlatLayout&) const = default;

 private:
  std::vector<FlatSlot> slots_;
  std::vector<FlatRow> rows_;
};

/// Memory with a layout. Copies share the memory, as copies of a tensor do.
///
/// Usage, for weights that R replicas share and gradients that each owns:
///
///     auto weights = FlatBuffer::flatten(net->parameters());   // once
///     weights.point_data(replica_net->parameters());           // every replica: its leaves alias the weights
///     FlatBuffer gradients(weights.layout());                  // every replica
///     gradients.point_grads(replica_net->parameters());        // backward() accumulates in place
///
/// Views do not know of each other or of the row: they are no views in autograd's sense, and each counts its own
/// versions. So a leaf stays a leaf, and writing to the row never makes autograd complain of a changed tensor: who
/// writes must know that no backward pass still needs the old values.
class FlatBuffer {
 public:
  FlatBuffer() = default;

  /// All zeros. On CPU the row starts at a multiple of 64 bytes, of a page where it is longer than one.
  explicit FlatBuffer(FlatLayout layout);

  /// The tensors' values in a layout of their own.
  static FlatBuffer flatten(std::span<const at::Tensor> tensors,
                            at::MemoryFormat format = at::MemoryFormat::Contiguous);

  const FlatLayout& layout() const { return layout_; }

  /// Row `index`, [numel], padding included.
  const at::Tensor& row(int64_t index = 0) const { return rows_.at(static_cast<size_t>(index)); }
  /// The part of its row that a chunk covers, [end - begin].
  at::Tensor row(const FlatChunk& chunk) const;

  /// The tensor at its place, with its sizes and strides. The same object at every call.
  const at::Tensor& view(int64_t tensor) const { return views_.at(static_cast<size_t>(tensor)); }
  std::span<const at::Tensor> views() const { return views_; }

  /// Copies values from or into tensors of the layout's shapes, of any dtype, device and strides. Not recorded by
  /// autograd. Throws Error when the number or a shape differs.
  void copy_from(std::span<const at::Tensor> tensors) const;
  void copy_to(std::span<const at::Tensor> tensors) const;

  /// Makes each parameter's data (its grad) the view, aliasing this memory; the values that were there are let go.
  /// The parameter stays the leaf it is. Throws Error when number, shape, dtype or device differ.
  void point_data(std::span<const at::Tensor> parameters) const;
  void point_grads(std::span<const at::Tensor> parameters) const;

  /// Zeroes every row.
  void zero() const;

 private:
  void check(const char* operation, std::span<const at::Tensor> tensors, bool same_type) const;

  FlatLayout layout_;
  std::vector<at::Tensor> rows_;
  std::vector<at::Tensor> views_;
};

}  // namespace lockstep
