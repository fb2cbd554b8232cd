// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

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
  /// Whether inputs and weights can be moved 16 bytes at a time.
  bool moves_whole() const {
    const auto places = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(weight);
    return places % 16 == 0 && from % kWhole<Storage> == 0 && to % kWhole<Storage> == 0;
  }
};

/// One block's work: a tile of slots times a block of output channels. All offsets pass, in their order; for each the
/// inputs' rows are gathered, a few channels at a time. Nobody else writes these outputs, and each is one sum in one
/// order. While a step is multiplied, the values of the next are on their way from memory into registers, all of them,
/// and so are the numbers of the rows that the offset after it wants.
template <class Storage, class Product, int kColumns, int kPack>
struct ForwardTile {
  using Shared = typename Product::Shared;

 private:
  static constexpr int kDepth = Product::kDepth;
  // What a thread moves in a step, in packs.
  static constexpr int kInputs = kTileRows * kDepth / kPack / kTileThreads;
  static constexpr int kWeights = kColumns * kDepth / kPack / kTileThreads;
  static constexpr int kPacksDeep = kDepth / kPack, kPacksAcross = kColumns / kPack;
  static_assert(kInputs >= 1 && kWeights >= 1);
  static_assert(kTileThreads % kPacksDeep == 0 && kTileThreads % kPacksAcross == 0);
  // Neighbouring threads read neighbouring channels of a row.
  static constexpr int kRowsApart = kTileThreads / kPacksDeep;

 public:
  struct Registers {
    typename Product::Registers product;
    Pack<Storage, kPack> inputs[kInputs], weights[kWeights];
    int32_t rows[kInputs], later_rows[kInputs];  // of this offset and of the one after it, or -1
  };

  template <class Block>
  LOCKSTEP_HOST_DEVICE static void run(Block& block, Shared& shared, const ForwardJob<Storage>& job, int64_t number) {
    // Blocks of one tile are neighbours: the rows that they gather are in the cache by then.
    const int64_t across = divide_up(job.to, kColumns);
    const int64_t tile = number / across / job.groups, group = number / across % job.groups;
    const int64_t first_column = number % across * kColumns;
    const bool along_columns = job.column_stride == 1;
    constexpr bool kInputsByDepth = Product::kByDepthOnly;
    const bool weights_by_depth = Product::kByDepthOnly || along_columns;
    const auto load = [&](int64_t k, int64_t channel, int thread, Registers& registers) {
      load_inputs(job, group, channel, thread, registers);
      const Storage* const weight = job.weight + k * job.offset_stride + group * job.group_stride;
      load_weights(job, weight, channel, first_column, WeightPlace(along_columns, thread), registers.weights);
    };

    int64_t k = following(job, tile, -1), channel = 0;
    block.phase([&](int thread, Registers& registers) {
      Product::clear_total(registers.product);
      Product::clear_part(registers.product);
      if (k == job.table.offsets) return;
      find_rows(job, tile, k, thread, registers);
      turn_to(job, tile, k, thread, registers);
      load(k, channel, thread, registers);
    });
    while (k < job.table.offsets) {
      const bool is_last = channel + kDepth >= job.from;
      const int64_t next_k = is_last ? following(job, tile, k) : k, next_channel = is_last ? 0 : channel + kDepth;
      block.phase([&](int thread, Registers& registers) {
        for (int n = 0; n < kInputs; ++n)
          shared.a.put(thread % kPacksDeep * kPack, n * kRowsApart + thread / kPacksDeep, kInputsByDepth,
                       registers.inputs[n], true);
        const WeightPlace place(along_columns, thread);
        for (int n = 0; n < kWeights; ++n)
          shared.b.put(place.depth + n * place.down, place.column + n * place.right, weights_by_depth,
                       registers.weights[n], !along_columns);
      });
      block.phase([&](int thread, Registers& registers) {
        if (next_k < job.table.offsets) {
          if (is_last) turn_to(job, tile, next_k, thread, registers);
          load(next_k, next_channel, thread, registers);
        }
        Product::multiply(shared, thread, registers.product, kInputsByDepth, weights_by_depth);
        if (!is_last) return;
        Product::add_part(registers.product);
        Product::clear_part(registers.product);
      });
      k = next_k;
      channel = next_channel;
    }
    block.phase([&](int thread, Registers& registers) { Product::stage(shared, thread, registers.product); });
    block.phase([&](int thread, Registers& registers) {
      Product::for_each_total(shared, thread, registers.product, [&](int row, int column, auto total) {
        const int64_t slot = tile * kTileRows + row, to = first_column + column;
        if (slot < job.table.size && to < job.to)
          job.y[(job.table.out_row(slot) * job.groups + group) * job.to + to] = static_cast<Storage>(total);
      });
    });
  }

 private:
  /// The next offset that a tile has, or the number of offsets.
  LOCKSTEP_HOST_DEVICE static int64_t following(const ForwardJob<Storage>& job, int64_t tile, int64_t k) {
    do ++k;
    while (k < job.table.offsets && !job.table.tile_has(tile, k));
    return k;
  }

  LOCKSTEP_HOST_DEVICE static void find_rows(const ForwardJob<Storage>& job, int64_t tile, int64_t k, int thread,
                                             Registers& registers) {
#pragma unroll
    for (int n = 0; n < kInputs; ++n)
      registers.later_rows[n] =
          static_cast<int32_t>(job.table.in_row(k, tile * kTileRows + n * kRowsApart + thread / kPacksDeep));
  }
  /// The rows that were found are those of offset k: those of the next one can be looked for.
  LOCKSTEP_HOST_DEVICE static void turn_to(const ForwardJob<Storage>& job, int64_t tile, int64_t k, int thread,
                                           Registers& registers) {
#pragma unroll
    for (int n = 0; n < kInputs; ++n) registers.rows[n] = registers.later_rows[n];
    if (const int64_t later = following(job, tile, k); later < job.table.offsets)
      find_rows(job, tile, later, thread, registers);
  }

  LOCKSTEP_HOST_DEVICE static void load_inputs(const ForwardJob<Storage>& job, int64_t group, int64_t channel,
                                               int thread, Registers& registers) {
    const int64_t from = channel + thread % kPacksDeep * kPack;
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      const int64_t row = registers.rows[n];
      registers.inputs[n] =
          load_pack<Storage, kPack>(job.x + (row * job.groups + group) * job.from + from, row >= 0 && from < job.from);
    }
  }

  /// Neighbouring threads read neighbouring weights too, whichever way the matrix lies: where a thread's first pack is
  /// in the step's matrix [depth, columns], and how far it is to its next one.
  struct WeightPlace {
    int depth, column, down, right;

    LOCKSTEP_HOST_DEVICE WeightPlace(bool along_columns, int thread)
        : depth(along_columns ? thread / kPacksAcross : thread % kPacksDeep * kPack),
          column(along_columns ? thread % kPacksAcross * kPack : thread / kPacksDeep),
          down(along_columns ? kTileThreads / kPacksAcross : 0),
          right(along_columns ? 0 : kRowsApart) {}
  };
  LOCKSTEP_HOST_DEVICE static void load_weights(const ForwardJob<Storage>& job, const Storage* weight, int64_t channel,
                                                int64_t first_column, const WeightPlace& place,
                                                Pack<Storage, kPack> (&packs)[kWeights]) {
    const int64_t from = channel + place.depth, to = first_column + place.column;
    const Storage* const first = weight + from * job.row_stride + to * job.column_stride;
    const int64_t step = place.down * job.row_stride + place.right * job.column_stride;
#pragma unroll
    for (int n = 0; n < kWeights; ++n)
      packs[n] = load_pack<Storage, kPack>(first + n * step,
                                           from + n * place.down < job.from && to + n * place.right < job.to);
  }
};

}  // namespace lockstep::sparse::cuda
