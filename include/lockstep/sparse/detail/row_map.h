// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/sparse/detail/device_copies.h"

namespace lockstep::sparse {

/// For each output row a list of input rows: the pattern of a sparse matrix, row by row. Pooling, global pooling,
/// broadcasting, pruning, union, slicing and interpolation are all products with such a matrix, and their gradients
/// products with the transposed one.
class RowMap : public torch::CustomClassHolder {
 public:
  /// `bounds` has one value more than there are rows; row r holds columns[bounds[r]] .. columns[bounds[r + 1] - 1].
  static c10::intrusive_ptr<RowMap> from_bounds(std::vector<int64_t> bounds, std::vector<int32_t> columns,
                                                int64_t in_size);
  /// Row r holds index[r] alone, or nothing where that is -1. `index` is int64 [rows]. Throws Error out of range.
  static c10::intrusive_ptr<RowMap> from_index(const at::Tensor& index, int64_t in_size);
  /// Entries (rows[i], columns[i]), int64 [entries] each, in any order; those of one row stay in their order. The
  /// entry numbers of operations are those of this list. Throws Error out of range.
  static c10::intrusive_ptr<RowMap> from_entries(const at::Tensor& rows, const at::Tensor& columns, int64_t out_size,
                                                 int64_t in_size);

  int64_t out_size() const { return static_cast<int64_t>(bounds_.size()) - 1; }
  int64_t in_size() const { return in_size_; }
  int64_t entry_count() const { return bounds_.back(); }
  std::span<const int64_t> bounds() const { return bounds_; }
  std::span<const int32_t> columns() const { return columns_; }
  /// The number that the caller knows an entry by; empty where it is its place.
  std::span<const int64_t> entries() const { return entries_; }
  int64_t entry(int64_t place) const { return entries_.empty() ? place : entries_[place]; }

  /// The other direction, with the same entry numbers. Made once.
  c10::intrusive_ptr<RowMap> transposed() const;

  /// The number of entries of each output row: what turns sums into means.
  at::Tensor row_lengths(at::ScalarType type) const;

  const DeviceCopies& device_copies() const { return copies_; }

 private:
  RowMap() = default;
  static c10::intrusive_ptr<RowMap> make() { return c10::intrusive_ptr<RowMap>::unsafe_steal_from_new(new RowMap); }

  std::vector<int64_t> bounds_;
  std::vector<int32_t> columns_;
  std::vector<int64_t> entries_;
  int64_t in_size_ = 0;
  mutable std::once_flag transposed_once_;
  mutable c10::intrusive_ptr<RowMap> transposed_;
  DeviceCopies copies_;
};

using RowMapPtr = c10::intrusive_ptr<RowMap>;

}  // namespace lockstep::sparse
