// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/maps/cuda/kernel_table.h"

namespace lockstep::sparse::cuda {

/// y[out][c] = sum over offsets of x[in][c] w[k][c]; item = slot * channels + c.
template <class Storage>
struct ChannelwiseForward {
  KernelTable table;
  const Storage *x, *weight;
  int64_t channels;
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t item) const {
    using T = Compute<Storage>;
    const int64_t slot = item / channels, c = item % channels;
    T sum = 0;
    for (int64_t k = 0; k < table.offsets; ++k) {
      if (!table.tile_has(slot / kTileRows, k)) continue;
      const int64_t row = table.in_row(k, slot);
      if (row < 0) continue;
      sum = multiply_add(static_cast<T>(x[row * channels + c]), static_cast<T>(weight[k * channels + c]), sum);
    }
    y[table.out_row(slot) * channels + c] = static_cast<Storage>(sum);
  }
};

/// sums[slice][k][c] = sum of x[in][c] g[out][c] over the pairs of offset k in a slice of slots.
template <class Storage>
struct ChannelwiseWeight {
  KernelTable table;
  RowSlices slices;
  const Storage *x, *g;
  int64_t channels;
  Compute<Storage>* sums;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t item) const {
    using T = Compute<Storage>;
    const int64_t c = item % channels, k = item / channels % table.offsets, slice = item / channels / table.offsets;
    T sum = 0;
    for (int64_t slot = slices.begin(slice); slot < slices.end(slice); ++slot) {
      const int64_t row = table.in_row(k, slot);
      if (row < 0) continue;
      sum = multiply_add(static_cast<T>(x[row * channels + c]), static_cast<T>(g[table.out_row(slot) * channels + c]),
                         sum);
    }
    sums[item] = sum;
  }
};

}  // namespace lockstep::sparse::cuda
