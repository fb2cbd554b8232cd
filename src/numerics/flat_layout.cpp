// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/flat.h"

namespace lockstep {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t aligned_numel(int64_t numel, at::ScalarType dtype) {
  return round_up(numel, flat_alignment_bytes / static_cast<int64_t>(c10::elementSize(dtype)));
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

// The bounds of one row's chunks, in the order asked for.
std::vector<FlatChunk> cut(int64_t row, int64_t numel, int64_t step, ChunkOrder order) {
  std::vector<FlatChunk> chunks;
  for (int64_t done = 0; done < numel; done += step) {
    const int64_t next = std::min(done + step, numel);
    chunks.push_back(order == ChunkOrder::forward ? FlatChunk{row, done, next, {}}
                                                  : FlatChunk{row, numel - next, numel - done, {}});
  }
  return chunks;
}

}  // namespace

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

FlatChunks FlatLayout::chunks(int64_t bytes, ChunkOrder order) const {
  require(bytes >= 1, "FlatLayout::chunks", "bytes is ", bytes, ", expected at least 1");
  FlatChunks result;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const FlatRow& row = rows_[i];
    const int64_t step = round_up(bytes, flat_alignment_bytes) / static_cast<int64_t>(c10::elementSize(row.dtype));
    for (FlatChunk& chunk : cut(static_cast<int64_t>(i), row.numel, step, order))
      result.chunks.push_back(std::move(chunk));
  }
  for (FlatChunk& chunk : result.chunks)
    for (int64_t tensor = 0; tensor < size(); ++tensor) {
      const FlatSlot& slot = slots_[static_cast<size_t>(tensor)];
      const int64_t begin = std::max(slot.offset, chunk.begin), end = std::min(slot.offset + slot.numel, chunk.end);
      if (slot.row == chunk.row && begin < end) chunk.tensors.push_back(tensor);
    }
  // With several rows: forward, a chunk is complete with its last tensor, and in reverse with its first.
  std::stable_sort(result.chunks.begin(), result.chunks.end(), [&](const FlatChunk& a, const FlatChunk& b) {
    return order == ChunkOrder::forward ? a.tensors.back() < b.tensors.back() : a.tensors.front() > b.tensors.front();
  });
  result.of_tensor.resize(slots_.size());
  for (size_t chunk = 0; chunk < result.chunks.size(); ++chunk)
    for (int64_t tensor : result.chunks[chunk].tensors)
      result.of_tensor[static_cast<size_t>(tensor)].push_back(static_cast<int64_t>(chunk));
  return result;
}

}  // namespace lockstep
