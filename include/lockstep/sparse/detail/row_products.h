// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/sparse/detail/row_map.h"

/// Products of a row map with features [in_size, C]: all give [out_size, C], the same bits for any number of threads,
/// and have gradients of any order. A row without entries is zero.
namespace lockstep::sparse {

at::Tensor sum_rows(const at::Tensor& x, const RowMapPtr& map);
at::Tensor mean_rows(const at::Tensor& x, const RowMapPtr& map);
/// The largest value of each channel; the gradient goes to the first of equal ones.
at::Tensor max_rows(const at::Tensor& x, const RowMapPtr& map);
/// Weighted by one value for each entry, [entries], on x's device or the CPU; they may ask for a gradient.
at::Tensor weigh_rows(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& weights);

/// Rows `index`, int64 [M]; and its adjoint: a table of `rows` rows that is the sum of x's rows at `index`.
at::Tensor take_rows(const at::Tensor& x, const at::Tensor& index);
at::Tensor put_rows(const at::Tensor& x, const at::Tensor& index, int64_t rows);

/// The product of a sparse matrix of `size` rows, with entries values[i] at (rows[i], columns[i]), and `x`. Entries at
/// one place are added; with `average` each row is divided by the number of its entries.
at::Tensor spmm(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& values, int64_t size,
                const at::Tensor& x, bool average = false);

}  // namespace lockstep::sparse
