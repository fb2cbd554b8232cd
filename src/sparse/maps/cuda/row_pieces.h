// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "sparse/ops/cuda/row_parts.h"

namespace lockstep::sparse::cuda {

/// How the entries of rows are cut into pieces, from their number alone.
struct RowPieces {
  std::vector<int64_t> piece_bounds;  ///< as RowTable's
  std::vector<int64_t> row_pieces;    ///< empty where every row is one piece

  explicit RowPieces(std::span<const int64_t> bounds);
  int64_t pieces() const { return static_cast<int64_t>(piece_bounds.size()) - 1; }
};

}  // namespace lockstep::sparse::cuda
