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
/// order. All values of a step are on their way from memory before the first is waited for: threads hold them in
/// registers and store them together.
template <class Storage, class Product, int kColumns>
struct ForwardTile {
  struct Shared {
    typename Product::Shared product;
    int64_t rows[kTileRows];  // where in x they begin, or -1
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
        if (thread < kTileRows) {
          const int64_t row = job.table.in_row(k, tile * kTileRows + thread);
          shared.rows[thread] = row < 0 ? -1 : (row * job.groups + group) * job.from;
        }
        Product::clear_part(registers);
      });
      const Storage* weight = job.weight + k * job.offset_stride + group * job.group_stride;
      for (int64_t channel = 0; channel < job.from; channel += Product::kDepth) {
        block.phase([&](int thread, Registers&) {
          Value inputs[kInputs], weights[kWeights];
          load_inputs(shared, job, channel, thread, inputs);
          const WeightPlace place(job, thread);
          load_weights(job, weight, channel, first_column, place, weights);
          store(shared, thread, place, inputs, weights);
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
  static constexpr int kDepth = Product::kDepth;
  static_assert(kTileThreads % kDepth == 0 && kTileThreads % kColumns == 0);
  // What a thread moves in a step.
  static constexpr int kInputs = kTileRows * kDepth / kTileThreads, kWeights = kColumns * kDepth / kTileThreads;

  // Neighbouring threads read neighbouring channels of a row.
  LOCKSTEP_HOST_DEVICE static void load_inputs(const Shared& shared, const ForwardJob<Storage>& job, int64_t channel,
                                               int thread, Value (&values)[kInputs]) {
    const int64_t from = channel + thread % kDepth;
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      const int64_t row = shared.rows[n * (kTileThreads / kDepth) + thread / kDepth];
      values[n] = row >= 0 && from < job.from ? static_cast<Value>(job.x[row + from]) : Value(0.0f);
    }
  }

  /// Neighbouring threads read neighbouring weights too, whichever way the matrix lies: where a thread's first weight
  /// is in the step's matrix [depth, columns], and how far it is to its next one.
  struct WeightPlace {
    int depth, column, down, right;

    LOCKSTEP_HOST_DEVICE WeightPlace(const ForwardJob<Storage>& job, int thread) {
      const bool along_columns = job.column_stride == 1;
      depth = along_columns ? thread / kColumns : thread % kDepth;
      column = along_columns ? thread % kColumns : thread / kDepth;
      down = along_columns ? kTileThreads / kColumns : 0;
      right = along_columns ? 0 : kTileThreads / kDepth;
    }
  };
  LOCKSTEP_HOST_DEVICE static void load_weights(const ForwardJob<Storage>& job, const Storage* weight, int64_t channel,
                                                int64_t first_column, const WeightPlace& place,
                                                Value (&values)[kWeights]) {
    const int64_t from = channel + place.depth, to = first_column + place.column;
    const Storage* const first = weight + from * job.row_stride + to * job.column_stride;
    const int64_t step = place.down * job.row_stride + place.right * job.column_stride;
#pragma unroll
    for (int n = 0; n < kWeights; ++n) {
      const bool inside = from + n * place.down < job.from && to + n * place.right < job.to;
      values[n] = inside ? static_cast<Value>(first[n * step]) : Value(0.0f);
    }
  }

  LOCKSTEP_HOST_DEVICE static void store(Shared& shared, int thread, const WeightPlace& place,
                                         const Value (&inputs)[kInputs], const Value (&weights)[kWeights]) {
#pragma unroll
    for (int n = 0; n < kInputs; ++n)
      shared.product.a[thread % kDepth][n * (kTileThreads / kDepth) + thread / kDepth] = inputs[n];
#pragma unroll
    for (int n = 0; n < kWeights; ++n)
      shared.product.b[place.depth + n * place.down][place.column + n * place.right] = weights[n];
  }
};

}  // namespace lockstep::sparse::cuda
