// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sparse/ops/cuda/product/scalar_product.h"

namespace lockstep::sparse::cuda {

/// How the offsets of a forward pass are cut up, from sizes alone: a part is a range of offsets with sums of its own.
/// A map of few tiles, as of a deep level of a network, gives the GPU enough to do at once only so.
struct OffsetParts {
  static constexpr int64_t kBlocks = 512, kLeast = 3;  // blocks that are enough; offsets that a part has
  int64_t offsets, count;

  OffsetParts(int64_t all_offsets, int64_t blocks) : offsets(all_offsets), count(1) {
    const int64_t by_blocks = blocks > 0 ? divide_up(kBlocks, blocks) : 1, by_offsets = offsets / kLeast;
    count = by_blocks < by_offsets ? by_blocks : by_offsets;
    if (count < 1) count = 1;
  }
  LOCKSTEP_HOST_DEVICE int64_t begin(int64_t part) const { return offsets * part / count; }
};

/// y[out] = sum over offsets k of x[in] W[k], group by group. `from` and `to` are channels of one group; weights lie
/// where the strides say, so that transposing them is free. Where offsets are in parts, sums are [parts, out, channels]
/// and y is their sum; else they are null.
template <class Storage>
struct ForwardJob {
  const Storage* x;
  const Storage* weight;
  Storage* y;
  Compute<Storage>* sums;
  KernelTable table;
  OffsetParts parts;
  int64_t groups, from, to;
  int64_t offset_stride, group_stride, row_stride, column_stride;

  int64_t blocks(int columns) const { return parts.count * table.tiles() * groups * divide_up(to, columns); }
  /// Whether inputs and weights can be moved 16 bytes at a time, and channels are not so few that several offsets in
  /// one step are worth more.
  bool moves_whole() const {
    const auto places = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(weight);
    return places % 16 == 0 && from % kWhole<Storage> == 0 && to % kWhole<Storage> == 0 && from > kFewChannels;
  }
};

/// One block's work: a tile of slots times a block of output channels. All offsets of a part pass, in their order; for
/// each the inputs' rows are gathered, a few channels at a time, or those of as many offsets as fit into one step where
/// channels are few (and single values move: a kernel that moves packs would lose a fourth of its blocks to the
/// registers that this takes). Nobody else writes these outputs, and each is one sum in one order. While a step is
/// multiplied, the values of the next are on their way from memory into registers, all of them, and so are the numbers
/// of the rows that the step after it wants.
template <class Storage, class Product, int kColumns, int kPack>
struct ForwardTile {
  using Shared = typename Product::Shared;

 private:
  static constexpr int kDepth = Product::kDepth;
  static constexpr bool kFew = kPack == 1;
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
    int32_t rows[kInputs], later_rows[kInputs];  // of this step's offsets and of the next ones, or -1
  };

  template <class Block>
  LOCKSTEP_HOST_DEVICE static void run(Block& block, Shared& shared, const ForwardJob<Storage>& job, int64_t number) {
    // Blocks of one tile are neighbours: the rows that they gather are in the cache by then.
    const int64_t across = divide_up(job.to, kColumns);
    const int64_t first_column = number % across * kColumns, group = number / across % job.groups;
    const int64_t rest = number / across / job.groups, tile = rest % job.table.tiles(), part = rest / job.table.tiles();
    const Steps steps(job, tile, part);
    const bool along_columns = job.column_stride == 1;
    constexpr bool kInputsByDepth = Product::kByDepthOnly;
    const bool weights_by_depth = Product::kByDepthOnly || along_columns;
    const auto load = [&](int64_t k, int64_t channel, int thread, Registers& registers) {
      const int64_t depth = steps.depth(k, channel);
      load_inputs(job, group, channel, depth, thread, registers);
      const Storage* const weight =
          job.weight + k * job.offset_stride + group * job.group_stride + channel * job.row_stride;
      load_weights(job, weight, depth, first_column, WeightPlace(along_columns, thread), registers.weights);
    };

    int64_t k = steps.first(), channel = 0;
    block.phase([&](int thread, Registers& registers) {
      Product::clear_total(registers.product);
      Product::clear_part(registers.product);
      if (k >= steps.end) return;
      find_rows(steps, k, thread, registers);
      turn_to(steps, k, thread, registers);
      load(k, channel, thread, registers);
    });
    while (k < steps.end) {
      const bool is_last = channel + kDepth >= job.from;
      const int64_t next_k = is_last ? steps.after(k) : k, next_channel = is_last ? 0 : channel + kDepth;
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
        if (next_k < steps.end) {
          if (is_last) turn_to(steps, next_k, thread, registers);
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
        if (slot >= job.table.size || to >= job.to) return;
        const int64_t place = (job.table.out_row(slot) * job.groups + group) * job.to + to;
        if (job.sums == nullptr)
          job.y[place] = static_cast<Storage>(total);
        else
          job.sums[part * job.table.size * job.groups * job.to + place] = total;
      });
    });
  }

 private:
  /// The steps of a tile through the offsets of a part: `together` offsets in one, of which the tile has one at least.
  struct Steps {
    const ForwardJob<Storage>& job;
    int64_t tile, begin, end;

    LOCKSTEP_HOST_DEVICE Steps(const ForwardJob<Storage>& all, int64_t tile, int64_t part)
        : job(all), tile(tile), begin(all.parts.begin(part)), end(all.parts.begin(part + 1)) {}

    LOCKSTEP_HOST_DEVICE int64_t first() const { return here_or_after(begin); }
    LOCKSTEP_HOST_DEVICE int64_t after(int64_t k) const { return here_or_after(k + together()); }
    /// How deep the matrices of a step are that begins with a channel of offset k: channels, offset after offset.
    LOCKSTEP_HOST_DEVICE int64_t depth(int64_t k, int64_t channel) const { return count(k) * job.from - channel; }

   private:
    LOCKSTEP_HOST_DEVICE int64_t together() const { return kFew && job.from < kDepth ? kDepth / job.from : 1; }
    LOCKSTEP_HOST_DEVICE int64_t count(int64_t k) const { return !kFew || k + together() < end ? together() : end - k; }
    /// `end` or more where there are no more.
    LOCKSTEP_HOST_DEVICE int64_t here_or_after(int64_t k) const {
      while (k < end && !job.table.tile_has(tile, k, k + count(k) - 1)) k += together();
      return k;
    }
  };
  /// Which of a step's offsets a place in its depth belongs to, and which channel. Where there is one offset alone, or
  /// not even all its channels, a place behind them is nobody's.
  struct Place {
    int offset = 0, channel;

    LOCKSTEP_HOST_DEVICE Place(const ForwardJob<Storage>& job, int depth) : channel(depth) {
      if (!kFew || depth < job.from) return;
      const int from = static_cast<int>(job.from);
      offset = depth / from;
      channel = depth % from;
    }
  };

  LOCKSTEP_HOST_DEVICE static void find_rows(const Steps& steps, int64_t k, int thread, Registers& registers) {
    const int64_t offset = k + Place(steps.job, thread % kPacksDeep * kPack).offset;
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      const int64_t slot = steps.tile * kTileRows + n * kRowsApart + thread / kPacksDeep;
      registers.later_rows[n] =
          !kFew || offset < steps.end ? static_cast<int32_t>(steps.job.table.in_row(offset, slot)) : -1;
    }
  }
  /// The rows that were found are those of the step at k: those of the next one can be looked for.
  LOCKSTEP_HOST_DEVICE static void turn_to(const Steps& steps, int64_t k, int thread, Registers& registers) {
#pragma unroll
    for (int n = 0; n < kInputs; ++n) registers.rows[n] = registers.later_rows[n];
    if (const int64_t later = steps.after(k); later < steps.end) find_rows(steps, later, thread, registers);
  }

  /// `depth` channels are left from this one on.
  LOCKSTEP_HOST_DEVICE static void load_inputs(const ForwardJob<Storage>& job, int64_t group, int64_t channel,
                                               int64_t depth, int thread, Registers& registers) {
    const int place = thread % kPacksDeep * kPack;
    const int64_t from = channel + Place(job, place).channel;
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      const int64_t row = registers.rows[n];
      registers.inputs[n] =
          load_pack<Storage, kPack>(job.x + (row * job.groups + group) * job.from + from, row >= 0 && place < depth);
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
  /// From the first of `depth` rows that are left on; those of the next offset follow them.
  LOCKSTEP_HOST_DEVICE static void load_weights(const ForwardJob<Storage>& job, const Storage* weight, int64_t depth,
                                                int64_t first_column, const WeightPlace& place,
                                                Pack<Storage, kPack> (&packs)[kWeights]) {
    const int64_t to = first_column + place.column;
    const Storage* const first = weight + row_of(job, place.depth) + to * job.column_stride;
    const int64_t step = place.down * job.row_stride + place.right * job.column_stride;
#pragma unroll
    for (int n = 0; n < kWeights; ++n)
      packs[n] = load_pack<Storage, kPack>(first + n * step,
                                           place.depth + n * place.down < depth && to + n * place.right < job.to);
  }
  /// Where a row lies after the step's first one. Along the columns the rows of all offsets lie one after another.
  LOCKSTEP_HOST_DEVICE static int64_t row_of(const ForwardJob<Storage>& job, int row) {
    if (!kFew || job.column_stride == 1) return row * job.row_stride;
    const Place place(job, row);
    return place.offset * job.offset_stride + place.channel * job.row_stride;
  }
};

}  // namespace lockstep::sparse::cuda
