// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "sparse/maps/cuda/kernel_table.h"

namespace lockstep::sparse::cuda {

constexpr int kTileThreads = 128;
/// So few input channels that the offsets of a kernel share a step, and move one by one for it.
constexpr int kFewChannels = 8;
/// Values between the lines of a matrix in shared memory: keeps threads off each other's banks, and lines aligned.
constexpr int kTilePad = 8;

/// Values that move together: 16 bytes where they are a multiple of that apart, else one.
template <class Storage, int kCount>
struct alignas(sizeof(Storage) * kCount) Pack {
  Storage values[kCount];
};
template <class Storage>
constexpr int kWhole = 16 / sizeof(Storage);

template <class Storage, int kCount>
LOCKSTEP_HOST_DEVICE Pack<Storage, kCount> load_pack(const Storage* data, bool is_there) {
  Pack<Storage, kCount> pack;
  if (is_there) {
    pack = *reinterpret_cast<const Pack<Storage, kCount>*>(data);
  } else {
    for (Storage& value : pack.values) value = Storage(0.0f);
  }
  return pack;
}

/// Blocks that a multiprocessor must have registers for; 0: as the compiler likes. Wide kernels that move packs need
/// just more than this leaves them. Float64 is slow either way, and single values would have to be spilled.
template <class Storage, int kColumns, int kPack>
constexpr int kBlocksAtOnce = kColumns > 32 && kPack > 1 && sizeof(Storage) <= sizeof(float) ? 4 : 0;

/// A factor of a product, [depth, width], in shared memory. Its lines lie along the width (`by_depth`: a line for each
/// depth) or along the depth.
template <class Value, int kDepth, int kWidth>
struct Factor {
  static constexpr int kByDepth = kDepth * (kWidth + kTilePad), kByWidth = kWidth * (kDepth + kTilePad);
  alignas(128) Value values[kByDepth > kByWidth ? kByDepth : kByWidth];

  LOCKSTEP_HOST_DEVICE static constexpr int line(bool by_depth) { return (by_depth ? kWidth : kDepth) + kTilePad; }
  LOCKSTEP_HOST_DEVICE static constexpr int at(int depth, int width, bool by_depth) {
    return by_depth ? depth * line(true) + width : width * line(false) + depth;
  }
  /// A pack that lies along the depth or along the width.
  template <class Storage, int kCount>
  LOCKSTEP_HOST_DEVICE void put(int depth, int width, bool by_depth, const Pack<Storage, kCount>& pack,
                                bool along_depth) {
    if (along_depth != by_depth) {
      static_assert(std::is_same_v<Storage, Value>);
      *reinterpret_cast<Pack<Value, kCount>*>(values + at(depth, width, by_depth)) = pack;
      return;
    }
    for (int i = 0; i < kCount; ++i)
      values[at(depth + (along_depth ? i : 0), width + (along_depth ? 0 : i), by_depth)] = pack.values[i];
  }
};

/// C += A^T B for tiles A [depth, kTileRows] and B [depth, kColumns] in shared memory, C spread over the registers of a
/// block. A sum is made in two steps, a `part` from zero for each offset and the `total` of parts: rounding then grows
/// with channels plus offsets and not with their product.
template <class Storage, int kColumns>
struct ScalarProduct {
  using Value = Compute<Storage>;
  using Sum = Value;
  static constexpr int kDepth = 16;
  static constexpr int kAcross = 4, kDown = kTileRows * kColumns / (kTileThreads * kAcross);  // what a thread owns
  static constexpr int kThreadsAcross = kColumns / kAcross;
  static constexpr bool kByDepthOnly = true;  // how it takes its factors

  struct Shared {
    Factor<Value, kDepth, kTileRows> a;
    Factor<Value, kDepth, kColumns> b;
  };
  struct Registers {
    Sum part[kDown][kAcross], total[kDown][kAcross];
  };

  LOCKSTEP_HOST_DEVICE static void clear(Sum (&sums)[kDown][kAcross]) {
    for (int i = 0; i < kDown; ++i)
      for (int j = 0; j < kAcross; ++j) sums[i][j] = Sum(0);
  }
  LOCKSTEP_HOST_DEVICE static void clear_total(Registers& registers) { clear(registers.total); }
  LOCKSTEP_HOST_DEVICE static void clear_part(Registers& registers) { clear(registers.part); }

  LOCKSTEP_HOST_DEVICE static void multiply(const Shared& shared, int thread, Registers& registers, bool, bool) {
    const int row = thread / kThreadsAcross * kDown, column = thread % kThreadsAcross * kAcross;
    for (int d = 0; d < kDepth; ++d) {
      Value a[kDown], b[kAcross];
      for (int i = 0; i < kDown; ++i) a[i] = shared.a.values[shared.a.at(d, row + i, true)];
      for (int j = 0; j < kAcross; ++j) b[j] = shared.b.values[shared.b.at(d, column + j, true)];
      for (int i = 0; i < kDown; ++i)
        for (int j = 0; j < kAcross; ++j) registers.part[i][j] = multiply_add(a[i], b[j], registers.part[i][j]);
    }
  }
  LOCKSTEP_HOST_DEVICE static void add_part(Registers& registers) {
    for (int i = 0; i < kDown; ++i)
      for (int j = 0; j < kAcross; ++j) registers.total[i][j] += registers.part[i][j];
  }

  /// Totals are in registers already.
  LOCKSTEP_HOST_DEVICE static void stage(Shared&, int, Registers&) {}
  /// Calls write(row, column, total) for what a thread writes.
  template <class Write>
  LOCKSTEP_HOST_DEVICE static void for_each_total(const Shared&, int thread, const Registers& registers,
                                                  const Write& write) {
    const int row = thread / kThreadsAcross * kDown, column = thread % kThreadsAcross * kAcross;
    for (int i = 0; i < kDown; ++i)
      for (int j = 0; j < kAcross; ++j) write(row + i, column + j, registers.total[i][j]);
  }
};

}  // namespace lockstep::sparse::cuda
