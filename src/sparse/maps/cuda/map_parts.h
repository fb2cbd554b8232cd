// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/maps/cuda/kernel_table.h"

// What one thread does in the making of coordinate maps and kernel maps. Between these steps lie sorts by key, stable,
// and running sums.

namespace lockstep::sparse::cuda {

template <class Key>
struct PackRows {
  PlainLayout layout;
  const int32_t* coordinates;
  Key* keys;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t row) const {
    keys[row] = layout.pack<Key>(coordinates + row * layout.columns);
  }
};

/// Keys of coordinates rounded down to multiples of a stride, in a layout of their own.
template <class From, class To>
struct RoundKeys {
  PlainLayout from, to;
  int32_t stride[PlainLayout::kMostColumns];  ///< of each column; 1 for the batch index
  const From* keys;
  To* rounded;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    int32_t coordinate[PlainLayout::kMostColumns];
    for (int column = 0; column < from.columns; ++column)
      coordinate[column] = round_down(from.value(keys[i], column), stride[column]);
    rounded[i] = to.pack<To>(coordinate);
  }
};

/// One 64-bit word of each key, in the order of `rows` (null: as they lie): what a sort takes at a time.
template <class Key>
struct TakeWord {
  const Key* keys;
  const int32_t* rows;
  int shift;
  uint64_t* words;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    words[i] = static_cast<uint64_t>(keys[rows == nullptr ? i : rows[i]] >> shift);
  }
};

struct CountUp {
  int32_t* values;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const { values[i] = static_cast<int32_t>(i); }
};

/// Among sorted keys, those that differ from the one before.
template <class Key>
struct MarkFirst {
  const Key* keys;
  const int32_t* rows;  ///< the row of keys at each sorted position
  int32_t* first;       ///< by position
  int32_t* kept;        ///< by row

  LOCKSTEP_HOST_DEVICE void operator()(int64_t position) const {
    const int32_t row = rows[position];
    const int32_t is_first = position == 0 || keys[row] != keys[rows[position - 1]] ? 1 : 0;
    first[position] = is_first;
    kept[row] = is_first;
  }
};

/// Writes what stays of each group of equal keys: the row that came first, since the sort was stable.
template <class Key>
struct CollectGroups {
  const Key* keys;
  const int32_t* rows;
  const int32_t *first, *group;  ///< by position; groups count from 1
  const int32_t* number;         ///< by row: how many rows up to it stay
  Key* group_keys;
  int32_t* group_numbers;
  int64_t* unique;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t position) const {
    if (!first[position]) return;
    const int32_t row = rows[position], place = group[position] - 1;
    group_keys[place] = keys[row];
    group_numbers[place] = number[row] - 1;
    unique[number[row] - 1] = row;
  }
};

struct NumberRows {
  const int32_t *rows, *group, *group_numbers;
  int64_t* inverse;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t position) const {
    inverse[rows[position]] = group_numbers[group[position] - 1];
  }
};

template <class Key>
struct UnpackKeys {
  PlainLayout layout;
  const Key* keys;
  int32_t* coordinates;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    coordinates[i] = layout.value(keys[i / layout.columns], static_cast<int>(i % layout.columns));
  }
};

/// found[offset][position]
template <class Key>
struct FindNeighbours {
  NeighbourSearch<Key> search;
  int32_t* found;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t item) const { found[item] = search.find(item); }
};

struct MaskPositions {
  const int32_t* found;
  int64_t offsets, size;
  uint64_t* masks;
  int32_t* positions;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t position) const {
    masks[position] = offset_mask(found, offsets, size, position);
    positions[position] = static_cast<int32_t>(position);
  }
};

/// Puts the table in the order of its slots.
struct ArrangeTable {
  const int32_t* found;
  const int32_t* positions;  ///< of each slot
  const int32_t* out_order;
  int64_t size;
  int32_t *in_rows, *out_rows;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t slot = item % size, position = positions[slot];
    in_rows[item] = found[item - slot + position];
    if (item == slot) out_rows[slot] = row_at(out_order, position);
  }
};

struct MaskTiles {
  const uint64_t* sorted_masks;
  int64_t size;
  uint64_t* tile_masks;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t tile) const { tile_masks[tile] = tile_mask(sorted_masks, size, tile); }
};

}  // namespace lockstep::sparse::cuda
