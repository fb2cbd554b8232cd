// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sparse/ops/cuda/product/scalar_product.h"

namespace lockstep::sparse::cuda {

/// How the sums of a weight gradient are cut up, from sizes alone: a slice is a range of tiles with a sum of its own.
/// Slices give the GPU more to do at once; their sums take memory, 64 Mi values at most between them (or one set).
struct WeightSlices {
  static constexpr int64_t kTiles = 8, kMost = 64, kValues = int64_t{1} << 26;
  int64_t tiles, count;

  WeightSlices(int64_t all_tiles, int64_t weights) : tiles(all_tiles), count(1) {
    const int64_t by_tiles = all_tiles / kTiles, by_memory = kValues / (weights > 0 ? weights : 1);
    count = by_tiles < by_memory ? by_tiles : by_memory;
    count = count < 1 ? 1 : count > kMost ? kMost : count;
  }
  LOCKSTEP_HOST_DEVICE int64_t begin(int64_t slice) const { return tiles * slice / count; }
};

/// sums[slice][k] = sum of x[in]^T g[out] over the pairs of offset k in a slice. `in` and `out` are channels of one
/// group; sums lie as the weights do, [slices, offsets, in, groups, out].
template <class Storage>
struct WeightJob {
  const Storage* x;
  const Storage* g;
  Compute<Storage>* sums;
  KernelTable table;
  WeightSlices slices;
  int64_t groups, in, out;

  LOCKSTEP_HOST_DEVICE int64_t weights() const { return table.offsets * groups * in * out; }
  /// Offsets that are one block's work: those whose input channels fit into its rows, where channels are few.
  LOCKSTEP_HOST_DEVICE int64_t together() const { return in <= kFewChannels ? kTileRows / in : 1; }
  int64_t blocks(int columns) const {
    return slices.count * divide_up(table.offsets, together()) * groups * divide_up(in, kTileRows) *
           divide_up(out, columns);
  }
  /// Whether rows can be moved 16 bytes at a time.
  bool moves_whole() const {
    const auto places = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(g);
    return places % 16 == 0 && in % kWhole<Storage> == 0 && out % kWhole<Storage> == 0 && in > kFewChannels;
  }
};

/// One block's work: kTileRows input channels times kColumns output channels of one offset and slice. The pairs of a
/// tile are put side by side first, so that empty slots cost nothing but a look. Where channels are few (and move
/// one by one) it works on several offsets at once, and slots without a pair are zeros.
template <class Storage, class Product, int kColumns, int kPack>
struct WeightTile {
  struct Shared {
    typename Product::Shared product;
    int64_t rows[kTileRows];
    int64_t in_rows[kTileRows], out_rows[kTileRows];  // where in x and g they begin
    int count;
  };
  using Registers = typename Product::Registers;
  static constexpr int kDepth = Product::kDepth;
  template <int kWidth>
  static constexpr int kPacks = kWidth* kDepth / kPack / kTileThreads;  // that a thread moves in a step
  static_assert(kPacks<kColumns> >= 1 && kTileThreads % (kTileRows / kPack) == 0);

  template <class Block>
  LOCKSTEP_HOST_DEVICE static void run(Block& block, Shared& shared, const WeightJob<Storage>& job, int64_t number) {
    const int64_t across = divide_up(job.out, kColumns), down = divide_up(job.in, kTileRows);
    const int64_t out = number % across * kColumns, in = number / across % down * kTileRows;
    const int64_t group = number / across / down % job.groups, rest = number / across / down / job.groups;
    const int64_t together = kPack == 1 ? job.together() : 1, steps = divide_up(job.table.offsets, together);
    const int64_t k = rest % steps * together, slice = rest / steps;
    const int64_t after = k + together < job.table.offsets ? k + together : job.table.offsets;
    const int64_t rows = (after - k) * job.in - in;  // of the matrix that this block and those below it make
    block.phase([&](int, Registers& registers) { Product::clear_total(registers); });
    for (int64_t tile = job.slices.begin(slice); tile < job.slices.begin(slice + 1); ++tile) {
      if (!job.table.tile_has(tile, k, after - 1)) continue;
      block.phase([&](int thread, Registers& registers) {
        if (thread < kTileRows)
          shared.rows[thread] =
              together > 1 ? row_of_slot(job, tile, thread) : job.table.in_row(k, tile * kTileRows + thread);
        Product::clear_part(registers);
      });
      block.phase([&](int thread, Registers&) { compact(shared, job, group, tile, thread); });
      const int count = shared.count;
      for (int pair = 0; pair < count; pair += kDepth) {
        block.phase([&](int thread, Registers&) {
          Pack<Storage, kPack> inputs[kPacks<kTileRows>], gradients[kPacks<kColumns>];
          if (together > 1)
            load_offsets(job, group, tile * kTileRows + pair, count - pair, k, rows, thread, inputs);
          else
            load<kTileRows>(job.x, shared.in_rows, count - pair, pair, job.in, in, thread, inputs);
          load<kColumns>(job.g, shared.out_rows, count - pair, pair, job.out, out, thread, gradients);
          store<kTileRows>(shared.product.a, thread, inputs);
          store<kColumns>(shared.product.b, thread, gradients);
        });
        block.phase([&](int thread, Registers& registers) {
          Product::multiply(shared.product, thread, registers, true, true);
        });
      }
      block.phase([&](int, Registers& registers) { Product::add_part(registers); });
    }
    block.phase([&](int thread, Registers& registers) { Product::stage(shared.product, thread, registers); });
    block.phase([&](int thread, Registers& registers) {
      Product::for_each_total(shared.product, thread, registers, [&](int row, int column, auto total) {
        if (row >= rows || out + column >= job.out) return;
        const int64_t line = (slice * job.table.offsets + k) * job.in + in + row;
        job.sums[(line * job.groups + group) * job.out + out + column] = total;
      });
    });
  }

 private:
  // With offsets together each slot of a tile counts as a pair.
  LOCKSTEP_HOST_DEVICE static int64_t row_of_slot(const WeightJob<Storage>& job, int64_t tile, int thread) {
    return tile * kTileRows + thread < job.table.size ? 0 : -1;
  }
  // A slot's place is the number of pairs before it.
  LOCKSTEP_HOST_DEVICE static void compact(Shared& shared, const WeightJob<Storage>& job, int64_t group, int64_t tile,
                                           int thread) {
    if (thread >= kTileRows) return;
    int before = 0;
    for (int slot = 0; slot < thread; ++slot) before += shared.rows[slot] >= 0;
    const bool here = shared.rows[thread] >= 0;
    if (here) {
      const int64_t out_row = job.table.out_row(tile * kTileRows + thread);
      shared.in_rows[before] = (shared.rows[thread] * job.groups + group) * job.in;
      shared.out_rows[before] = (out_row * job.groups + group) * job.out;
    }
    if (thread == kTileRows - 1) shared.count = before + here;
  }
  /// Channels [first, first + width) of the next pairs' rows, at most `left` of them, zeros where either ends. All
  /// values of a step are on their way before the first is stored.
  template <int kWidth>
  LOCKSTEP_HOST_DEVICE static void load(const Storage* data, const int64_t* rows, int left, int pair, int64_t channels,
                                        int64_t first, int thread, Pack<Storage, kPack> (&packs)[kPacks<kWidth>]) {
    constexpr int kAcross = kWidth / kPack;
    const int64_t channel = first + thread % kAcross * kPack;
#pragma unroll
    for (int n = 0; n < kPacks<kWidth>; ++n) {
      const int d = n * (kTileThreads / kAcross) + thread / kAcross;
      const bool inside = d < left && channel < channels;
      packs[n] = load_pack<Storage, kPack>(data + (inside ? rows[pair + d] + channel : 0), inside);
    }
  }
  /// The input channels of all offsets from k on that meet the next slots, offset after offset, `rows` in all.
  LOCKSTEP_HOST_DEVICE static void load_offsets(const WeightJob<Storage>& job, int64_t group, int64_t slot, int left,
                                                int64_t k, int64_t rows, int thread,
                                                Pack<Storage, kPack> (&packs)[kPacks<kTileRows>]) {
    constexpr int kAcross = kTileRows / kPack;
    const int place = thread % kAcross * kPack, in = static_cast<int>(job.in);
#pragma unroll
    for (int n = 0; n < kPacks<kTileRows>; ++n) {
      const int d = n * (kTileThreads / kAcross) + thread / kAcross;
      const int64_t row = place < rows && d < left ? job.table.in_row(k + place / in, slot + d) : -1;
      packs[n] = load_pack<Storage, kPack>(job.x + (row * job.groups + group) * job.in + place % in, row >= 0);
    }
  }
  template <int kWidth, class Factor>
  LOCKSTEP_HOST_DEVICE static void store(Factor& factor, int thread,
                                         const Pack<Storage, kPack> (&packs)[kPacks<kWidth>]) {
    constexpr int kAcross = kWidth / kPack;
#pragma unroll
    for (int n = 0; n < kPacks<kWidth>; ++n)
      factor.put(n * (kTileThreads / kAcross) + thread / kAcross, thread % kAcross * kPack, true, packs[n], false);
  }
};

}  // namespace lockstep::sparse::cuda
