// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sparse/maps/cuda/row_pieces.h"

namespace lockstep::sparse::cuda {

RowPieces::RowPieces(std::span<const int64_t> bounds) : piece_bounds{0}, row_pieces{0} {
  const int64_t length = RowSlices(bounds.back()).length;
  bool whole = true;
  for (size_t row = 0; row + 1 < bounds.size(); ++row) {
    int64_t begin = bounds[row];
    do {  // a row without entries is a piece too
      begin = std::min(begin + length, bounds[row + 1]);
      piece_bounds.push_back(begin);
    } while (begin < bounds[row + 1]);
    row_pieces.push_back(pieces());
    whole = whole && row_pieces[row + 1] == row_pieces[row] + 1;
  }
  if (whole) row_pieces.clear();
}

}  // namespace lockstep::sparse::cuda
