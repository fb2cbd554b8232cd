// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/detail/row_map.h"

#include <ATen/ops/empty.h>

#include <limits>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::sparse {
namespace {

void check_size(const char* operation, int64_t size) {
  require(size >= 0 && size < std::numeric_limits<int32_t>::max(), operation, "there are ", size,
          " rows, expected 0 to 2^31 - 2");
}

at::Tensor checked_index(const char* operation, const char* name, const at::Tensor& index, int64_t size, int64_t low) {
  require(index.dim() == 1 && index.scalar_type() == at::kLong && index.device().is_cpu(), operation, name, " is ",
          c10::toString(index.scalar_type()), " ", text(index.sizes()), " on ", index.device().str(),
          ", expected Long [entries] on cpu");
  at::Tensor contiguous = index.contiguous();
  const int64_t* values = contiguous.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < contiguous.size(0); ++i)
    require(values[i] >= low && values[i] < size, operation, name, "[", i, "] is ", values[i], ", expected ", low,
            " to ", size - 1);
  return contiguous;
}

}  // namespace

RowMapPtr RowMap::from_bounds(std::vector<int64_t> bounds, std::vector<int32_t> columns, int64_t in_size) {
  RowMapPtr map = make();
  LOCKSTEP_ASSERT(!bounds.empty() && bounds.back() == static_cast<int64_t>(columns.size()));
  map->bounds_ = std::move(bounds);
  map->columns_ = std::move(columns);
  map->in_size_ = in_size;
  return map;
}

RowMapPtr RowMap::from_index(const at::Tensor& index, int64_t in_size) {
  check_size("RowMap::from_index", in_size);
  const at::Tensor given = checked_index("RowMap::from_index", "index", index, in_size, -1);
  const int64_t* values = given.const_data_ptr<int64_t>();
  std::vector<int64_t> bounds(given.size(0) + 1, 0);
  std::vector<int32_t> columns;
  columns.reserve(given.size(0));
  for (int64_t row = 0; row < given.size(0); ++row) {
    if (values[row] >= 0) columns.push_back(static_cast<int32_t>(values[row]));
    bounds[row + 1] = static_cast<int64_t>(columns.size());
  }
  return from_bounds(std::move(bounds), std::move(columns), in_size);
}

RowMapPtr RowMap::from_entries(const at::Tensor& rows, const at::Tensor& columns, int64_t out_size, int64_t in_size) {
  const char* operation = "RowMap::from_entries";
  check_size(operation, in_size);
  check_size(operation, out_size);
  require(rows.numel() == columns.numel(), operation, "there are ", rows.numel(), " rows and ", columns.numel(),
          " columns, expected one of each for every entry");
  const at::Tensor given_rows = checked_index(operation, "rows", rows, out_size, 0);
  const at::Tensor given_columns = checked_index(operation, "columns", columns, in_size, 0);
  const int64_t count = given_rows.size(0);
  const int64_t* row = given_rows.const_data_ptr<int64_t>();
  const int64_t* column = given_columns.const_data_ptr<int64_t>();
  RowMapPtr map = make();
  map->in_size_ = in_size;
  map->bounds_.assign(out_size + 1, 0);
  map->columns_.resize(count);
  map->entries_.resize(count);
  for (int64_t i = 0; i < count; ++i) ++map->bounds_[row[i] + 1];
  std::partial_sum(map->bounds_.begin(), map->bounds_.end(), map->bounds_.begin());
  std::vector<int64_t> next(map->bounds_.begin(), map->bounds_.end() - 1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = next[row[i]]++;
    map->columns_[place] = static_cast<int32_t>(column[i]);
    map->entries_[place] = i;
  }
  return map;
}

RowMapPtr RowMap::transposed() const {
  std::call_once(transposed_once_, [this] {
    RowMapPtr map = make();
    map->in_size_ = out_size();
    map->bounds_.assign(in_size_ + 1, 0);
    map->columns_.resize(columns_.size());
    map->entries_.resize(columns_.size());
    for (const int32_t column : columns_) ++map->bounds_[column + 1];
    std::partial_sum(map->bounds_.begin(), map->bounds_.end(), map->bounds_.begin());
    std::vector<int64_t> next(map->bounds_.begin(), map->bounds_.end() - 1);
    for (int64_t row = 0; row < out_size(); ++row)
      for (int64_t place = bounds_[row]; place < bounds_[row + 1]; ++place) {
        const int64_t to = next[columns_[place]]++;
        map->columns_[to] = static_cast<int32_t>(row);
        map->entries_[to] = entry(place);
      }
    transposed_ = std::move(map);
  });
  return transposed_;
}

at::Tensor RowMap::row_lengths(at::ScalarType type) const {
  at::Tensor lengths = at::empty({out_size()}, at::kDouble);
  double* out = lengths.mutable_data_ptr<double>();
  for (int64_t row = 0; row < out_size(); ++row) out[row] = static_cast<double>(bounds_[row + 1] - bounds_[row]);
  return lengths.to(type);
}

}  // namespace lockstep::sparse
