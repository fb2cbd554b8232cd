// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/maps/cuda/kernel_table.h"

namespace lockstep::sparse::cuda {

constexpr int kTileThreads = 128;
/// Values between the lines of a matrix in shared memory: keeps threads off each other's banks, and lines aligned.
constexpr int kTilePad = 8;

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

  struct Shared {
    Value a[kDepth][kTileRows + kTilePad];
    Value b[kDepth][kColumns + kTilePad];
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

  LOCKSTEP_HOST_DEVICE static void multiply(const Shared& shared, int thread, Registers& registers) {
    const int row = thread / kThreadsAcross * kDown, column = thread % kThreadsAcross * kAcross;
    for (int d = 0; d < kDepth; ++d) {
      Value a[kDown], b[kAcross];
      for (int i = 0; i < kDown; ++i) a[i] = shared.a[d][row + i];
      for (int j = 0; j < kAcross; ++j) b[j] = shared.b[d][column + j];
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
