// SPDX-License-Identifier: Apache-2.0
// Many tensors in one launch of a rule's kernel, on a GPU: what a launch costs is more than a small tensor takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "parallel/optim/rules/kernel.h"

namespace lockstep::parallel {

/// Elements of a tensor that neighbouring threads do together, counted from its first. The cut depends on the tensor's
/// size alone.
struct RuleChunk {
  static constexpr int64_t kElements = 4096;
  int32_t row;
  int32_t number;
};

/// A kernel's rows, one a tensor, and the chunks of all of them, in the GPU's memory.
struct RuleTable {
  const std::byte* rows;
  const RuleChunk* chunks;
  int64_t count;  // of chunks
};

template <class T, class Numbers>
struct RuleRow {
  RuleElements<T> elements;
  Numbers numbers;
};

template <class T>
struct SquaresRow {
  const T* values;
  int64_t count;
};

namespace on_gpu {

/// Whether rules of weights there are computed in batches.
bool batches(c10::Device device);

/// `sums`: [count], of the squares of each chunk's values. `lines`: memory for kSquareLanes * count numbers. Each is
/// added up in the same order whatever else is in the table.
inline constexpr int64_t kSquareLanes = 64;
void squares_float(const RuleTable& table, double* lines, double* sums);
void squares_double(const RuleTable& table, double* lines, double* sums);

}  // namespace on_gpu

/// A table in the making.
class RuleTableDraft {
 public:
  /// `count`: the elements of this row's tensor. All rows have one type.
  template <class Row>
  void add(const Row& row, int64_t count) {
    static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % alignof(RuleChunk) == 0);
    add(&row, sizeof row, count);
  }
  std::span<const RuleChunk> chunks() const { return chunks_; }

  /// Copies it to a device, without waiting. The table points into `memory`.
  RuleTable upload(c10::Device device, at::Tensor& memory) const;

 private:
  void add(const void* row, size_t size, int64_t count);

  std::vector<std::byte> rows_;
  std::vector<RuleChunk> chunks_;
  int32_t count_ = 0;
};

/// The calls of rules' kernels that wait for their launch. Used by one thread at a time.
class RuleBatch {
 public:
  using Launch = void (*)(const RuleTable&);

  /// `tensors` are held until run().
  template <class T, class Numbers>
  void add(Launch launch, const RuleElements<T>& elements, const Numbers& numbers,
           std::span<const at::Tensor> tensors) {
    group(launch).add(RuleRow<T, Numbers>{elements, numbers}, elements.count);
    held_.insert(held_.end(), tensors.begin(), tensors.end());
  }
  /// Launches them on the current stream. They touch different tensors, so in any order.
  void run();

 private:
  struct Group {
    Launch launch;
    RuleTableDraft table;
  };
  RuleTableDraft& group(Launch launch);

  std::vector<Group> groups_;
  std::vector<at::Tensor> held_;
};

}  // namespace lockstep::parallel
