// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/maps/cuda/key_search.h"

// A kernel map on a device is a table: for each offset and each slot the input row, or -1. Slots are outputs, sorted by
// the set of offsets at which they meet an input: outputs of a tile then want the same weights, and a tile leaves out
// the offsets that none of its outputs has. An output's sum does not depend on its slot.

namespace lockstep::sparse::cuda {

constexpr int kTileRows = 64;

/// The bit that stands for an offset. Kernels of more than 64 offsets share bits: a tile then looks at a few too many.
LOCKSTEP_HOST_DEVICE inline int bit_of(int64_t offset, int64_t offsets) {
  return static_cast<int>(offsets <= 64 ? offset : offset * 64 / offsets);
}

/// The set of offsets at which a position meets an input; `found` is [offsets, size].
LOCKSTEP_HOST_DEVICE inline uint64_t offset_mask(const int32_t* found, int64_t offsets, int64_t size,
                                                 int64_t position) {
  uint64_t mask = 0;
  for (int64_t k = 0; k < offsets; ++k)
    if (found[k * size + position] >= 0) mask |= uint64_t{1} << bit_of(k, offsets);
  return mask;
}

/// What the slots of a tile have between them.
LOCKSTEP_HOST_DEVICE inline uint64_t tile_mask(const uint64_t* sorted_masks, int64_t size, int64_t tile) {
  uint64_t mask = 0;
  const int64_t end = (tile + 1) * kTileRows < size ? (tile + 1) * kTileRows : size;
  for (int64_t slot = tile * kTileRows; slot < end; ++slot) mask |= sorted_masks[slot];
  return mask;
}

struct KernelTable {
  const int32_t* in_rows = nullptr;      ///< [offsets, size]; null: each row meets itself
  const int32_t* out_rows = nullptr;     ///< [size], the row of a slot; null: the slot itself
  const uint64_t* tile_masks = nullptr;  ///< [tiles]; null: all offsets
  int64_t size = 0, offsets = 1;
  bool mirrored = false;  ///< offset k is the last but k of the lists: a map onto itself with its sides exchanged

  LOCKSTEP_HOST_DEVICE int64_t tiles() const { return divide_up(size, kTileRows); }
  LOCKSTEP_HOST_DEVICE bool tile_has(int64_t tile, int64_t offset) const { return tile_has(tile, offset, offset); }
  /// Any of the offsets from the first to the last.
  LOCKSTEP_HOST_DEVICE bool tile_has(int64_t tile, int64_t first, int64_t last) const {
    if (tile_masks == nullptr) return true;
    const int low = bit_of(mirrored ? offsets - 1 - last : first, offsets),
              high = bit_of(mirrored ? offsets - 1 - first : last, offsets);
    return tile_masks[tile] >> low << (63 - high + low) != 0;
  }
  /// -1 where there is none, and past the last slot.
  LOCKSTEP_HOST_DEVICE int64_t in_row(int64_t offset, int64_t slot) const {
    if (slot >= size) return -1;
    return in_rows == nullptr ? slot : in_rows[(mirrored ? offsets - 1 - offset : offset) * size + slot];
  }
  LOCKSTEP_HOST_DEVICE int64_t out_row(int64_t slot) const { return out_rows == nullptr ? slot : out_rows[slot]; }
};

}  // namespace lockstep::sparse::cuda
