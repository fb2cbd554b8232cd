// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/ops/cuda/product/scalar_product.h"

namespace lockstep::sparse::cuda {

/// y[out] = sum over offsets k of x[in] W[k], group by group. `from` and `to` are channels of one group; weights lie
/// where the strides say, so that transposing them is free.
template <class Storage>
struct ForwardJob {
  const Storage* x;
  const Storage* weight;
  Storage* y;
  KernelTable table;
  int64_t groups, from, to;
  int64_t offset_stride, group_stride, row_stride, column_stride;

  int64_t blocks(int columns) const { return table.tiles() * groups * divide_up(to, columns); }
};

/// One block's work: a tile of slots times a block of output channels. All offsets pass, in their order; for each the
/// inputs' rows are gathered, a few channels at a time. Nobody else writes these outputs, and each is one sum in one
/// order.
template <class Storage, class Product, int kColumns>
struct ForwardTile {
  struct Shared {
    typename Product::Shared product;
    int64_t rows[kTileRows];
  };
  using Registers = typename Product::Registers;
  using Value = typename Product::Value;

  template <class Block>
  LOCKSTEP_HOST_DEVICE static void run(Block& block, Shared& shared, const ForwardJob<Storage>& job, int64_t number) {
    // Blocks of one tile are neighbours: the rows that they gather are in the cache by then.
    const int64_t across = divide_up(job.to, kColumns);
    const int64_t tile = number / across / job.groups, group = number / across % job.groups;
    const int64_t first_column = number % across * kColumns;
    block.phase([&](int, Registers& registers) { Product::clear_total(registers); });
    for (int64_t k = 0; k < job.table.offsets; ++k) {
      if (!job.table.tile_has(tile, k)) continue;
      block.phase([&](int thread, Registers& registers) {
        if (thread < kTileRows) shared.rows[thread] = job.table.in_row(k, tile * kTileRows + thread);
        Product::clear_part(registers);
      });
      const Storage* weight = job.weight + k * job.offset_stride + group * job.group_stride;
      for (int64_t channel = 0; channel < job.from; channel += Product::kDepth) {
        block.phase([&](int thread, Registers&) {
          gather(shared, job, group, channel, thread);
          load_weights(shared, job, weight, channel, first_column, thread);
        });
        block.phase([&](int thread, Registers& registers) { Product::multiply(shared.product, thread, registers); });
      }
      block.phase([&](int, Registers& registers) { Product::add_part(registers); });
    }
    block.phase([&](int thread, Registers& registers) { Product::stage(shared.product, thread, registers); });
    block.phase([&](int thread, Registers& registers) {
      Product::for_each_total(shared.product, thread, registers, [&](int row, int column, auto total) {
        const int64_t slot = tile * kTileRows + row, to = first_column + column;
        if (slot < job.table.size && to < job.to)
          job.y[(job.table.out_row(slot) * job.groups + group) * job.to + to] = static_cast<Storage>(total);
      });
    });
  }

 private:
  // Neighbouring threads read neighbouring channels of a row.
  LOCKSTEP_HOST_DEVICE static void gather(Shared& shared, const ForwardJob<Storage>& job, int64_t group,
                                          int64_t channel, int thread) {
    for (int i = thread; i < kTileRows * Product::kDepth; i += kTileThreads) {
      const int d = i % Product::kDepth, slot = i / Product::kDepth;
      const int64_t row = shared.rows[slot];
      const bool inside = row >= 0 && channel + d < job.from;
      shared.product.a[d][slot] =
          inside ? static_cast<Value>(job.x[(row * job.groups + group) * job.from + channel + d]) : Value(0.0f);
    }
  }
  // They read neighbouring weights too, whichever way the matrix lies.
  LOCKSTEP_HOST_DEVICE static void load_weights(Shared& shared, const ForwardJob<Storage>& job, const Storage* weight,
                                                int64_t channel, int64_t first_column, int thread) {
    for (int i = thread; i < kColumns * Product::kDepth; i += kTileThreads) {
      const bool along_columns = job.column_stride == 1;
      const int d = along_columns ? i / kColumns : i % Product::kDepth;
      const int column = along_columns ? i % kColumns : i / Product::kDepth;
      const bool inside = channel + d < job.from && first_column + column < job.to;
      shared.product.b[d][column] =
          inside
              ? static_cast<Value>(weight[(channel + d) * job.row_stride + (first_column + column) * job.column_stride])
              : Value(0.0f);
    }
  }
};

}  // namespace lockstep::sparse::cuda
