// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/cuda/portable.h"

// What one thread does in the operations on row maps. A row's entries are cut into pieces of bounded length, so that a
// row with very many of them (a batch entry's every point) occupies many threads; the sums of pieces join as a tree.

namespace lockstep::sparse::cuda {

struct RowTable {
  const int64_t* piece_bounds = nullptr;   ///< [pieces + 1]: places of entries
  const int64_t* row_pieces = nullptr;     ///< [rows + 1]; null: one piece a row
  const int32_t* columns = nullptr;        ///< by place
  const int64_t* entries = nullptr;        ///< by place, the caller's number; null: the place itself
  const int32_t* entry_columns = nullptr;  ///< by the caller's number
  int64_t rows = 0, pieces = 0, entry_count = 0;

  LOCKSTEP_HOST_DEVICE bool whole() const { return row_pieces == nullptr; }
  LOCKSTEP_HOST_DEVICE int64_t entry(int64_t place) const { return entries == nullptr ? place : entries[place]; }
  LOCKSTEP_HOST_DEVICE int64_t row_of_place(int64_t place) const {
    const int64_t piece = last_not_above(piece_bounds, pieces, place);
    return whole() ? piece : last_not_above(row_pieces, rows, piece);
  }

 private:
  // The last i with bounds[i] <= value.
  LOCKSTEP_HOST_DEVICE static int64_t last_not_above(const int64_t* bounds, int64_t count, int64_t value) {
    int64_t low = 0, high = count;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (bounds[middle] <= value)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

/// A piece's sum: into `sums` for JoinPieces, straight into y where every row is one piece and there are no `sums`.
template <class Storage>
LOCKSTEP_HOST_DEVICE void put_sum(Compute<Storage> sum, int64_t i, Compute<Storage>* sums, Storage* y) {
  if (sums == nullptr)
    y[i] = static_cast<Storage>(sum);
  else
    sums[i] = sum;
}

/// sums[piece][c] = sum of w x over the piece.
template <class Storage>
struct SumPiece {
  RowTable table;
  const Storage* x;
  const Storage* weights;  ///< null: all 1
  int64_t channels;
  Compute<Storage>* sums;  ///< null where each row is one piece
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    using T = Compute<Storage>;
    const int64_t piece = i / channels, c = i % channels;
    T sum = 0;
    for (int64_t place = table.piece_bounds[piece]; place < table.piece_bounds[piece + 1]; ++place) {
      const T value = static_cast<T>(x[table.columns[place] * channels + c]);
      sum = weights == nullptr ? sum + value : multiply_add(static_cast<T>(weights[table.entry(place)]), value, sum);
    }
    put_sum(sum, i, sums, y);
  }
};

/// The same where an entry counts for those channels alone that have chosen it.
template <class Storage>
struct SumChosen {
  RowTable table;  ///< transposed: columns are rows of `chosen` and g
  const Storage* g;
  const int64_t* chosen;
  int64_t channels;
  Compute<Storage>* sums;
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    using T = Compute<Storage>;
    const int64_t piece = i / channels, c = i % channels;
    T sum = 0;
    for (int64_t place = table.piece_bounds[piece]; place < table.piece_bounds[piece + 1]; ++place) {
      const int64_t from = table.columns[place] * channels + c;
      if (chosen[from] == table.entry(place)) sum += static_cast<T>(g[from]);
    }
    put_sum(sum, i, sums, y);
  }
};

template <class Storage>
struct JoinPieces {
  RowTable table;
  const Compute<Storage>* sums;
  int64_t channels;
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / channels, c = i % channels, first = table.row_pieces[row];
    y[i] = static_cast<Storage>(sum_as_tree(table.row_pieces[row + 1] - first,
                                            [&](int64_t piece) { return sums[(first + piece) * channels + c]; }));
  }
};

/// The largest value so far and the entry that has it; -1 where there is none.
template <class Storage>
struct Best {
  Storage value;
  int64_t entry;
};

/// `b` comes later. The first of equal ones stays; NaN beats all.
template <class Storage>
LOCKSTEP_HOST_DEVICE Best<Storage> better(const Best<Storage>& a, const Best<Storage>& b) {
  if (b.entry < 0) return a;
  if (a.entry < 0) return b;
  const auto old = static_cast<Compute<Storage>>(a.value), now = static_cast<Compute<Storage>>(b.value);
  return !(now <= old) && old == old ? b : a;
}

template <class Storage>
struct BestOfPiece {
  RowTable table;
  const Storage* x;
  int64_t channels;
  Best<Storage>* bests;  ///< null where each row is one piece
  int64_t* chosen;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t piece = i / channels, c = i % channels;
    Best<Storage> best{Storage(0.0f), -1};
    for (int64_t place = table.piece_bounds[piece]; place < table.piece_bounds[piece + 1]; ++place)
      best = better(best, Best<Storage>{x[table.columns[place] * channels + c], table.entry(place)});
    if (bests == nullptr)
      chosen[i] = best.entry;
    else
      bests[i] = best;
  }
};

template <class Storage>
struct JoinBests {
  RowTable table;
  const Best<Storage>* bests;
  int64_t channels;
  int64_t* chosen;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / channels, c = i % channels;
    Best<Storage> best{Storage(0.0f), -1};
    for (int64_t piece = table.row_pieces[row]; piece < table.row_pieces[row + 1]; ++piece)
      best = better(best, bests[piece * channels + c]);
    chosen[i] = best.entry;
  }
};

template <class Storage>
struct PickChosen {
  RowTable table;
  const Storage* x;
  const int64_t* chosen;
  int64_t channels;
  Storage* y;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t entry = chosen[i];
    y[i] = entry < 0 ? Storage(0.0f) : x[table.entry_columns[entry] * channels + i % channels];
  }
};

/// w[entry of a place] = dot(g[row], x[column]).
template <class Storage>
struct DotEntry {
  RowTable table;
  const Storage *g, *x;
  int64_t channels;
  Storage* weights;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t place) const {
    using T = Compute<Storage>;
    const Storage* a = g + table.row_of_place(place) * channels;
    const Storage* b = x + table.columns[place] * channels;
    T sum = 0;
    for (int64_t c = 0; c < channels; ++c) sum = multiply_add(static_cast<T>(a[c]), static_cast<T>(b[c]), sum);
    weights[table.entry(place)] = static_cast<Storage>(sum);
  }
};

/// sums[slice][c]
template <class Storage>
struct SumSlice {
  const Storage* x;
  int64_t channels;
  RowSlices slices;
  Compute<Storage>* sums;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    using T = Compute<Storage>;
    const int64_t slice = i / channels, c = i % channels;
    T sum = 0;
    for (int64_t row = slices.begin(slice); row < slices.end(slice); ++row)
      sum += static_cast<T>(x[row * channels + c]);
    sums[i] = sum;
  }
};

}  // namespace lockstep::sparse::cuda
