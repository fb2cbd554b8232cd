// SPDX-License-Identifier: Apache-2.0
// The index code that the CUDA kernels share with the CPU.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "sparse/maps/cuda/key_search.h"
#include "sparse/maps/cuda/row_pieces.h"
#include "sparse/ops/cuda/product/forward_tile.h"
#include "sparse/ops/cuda/product/weight_tile.h"

namespace lockstep::sparse {
namespace {

TEST(CudaIndex, KeysAreFoundWhereTheyStand) {
  for (const int64_t count : {0, 1, 2, 3, 100, 1000}) {
    std::vector<uint64_t> keys(count);
    for (int64_t i = 0; i < count; ++i) keys[i] = 3 * i + 5;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(cuda::find_key(keys.data(), count, keys[i]), i);
      EXPECT_EQ(cuda::find_key(keys.data(), count, keys[i] + 1), -1);
      EXPECT_EQ(cuda::find_key(keys.data(), count, keys[i] - 1), -1);
    }
    EXPECT_EQ(cuda::find_key(keys.data(), count, uint64_t{0}), -1);
    EXPECT_EQ(cuda::find_key(keys.data(), count, ~uint64_t{0}), -1);
  }
}

TEST(CudaIndex, RoundsTowardsMinusInfinity) {
  constexpr int32_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
  for (const int32_t stride : {1, 2, 3, 7, 64})
    for (int32_t value = -200; value <= 200; ++value) {
      const int32_t got = cuda::round_down(value, stride);
      EXPECT_EQ(got % stride, 0);
      EXPECT_TRUE(got <= value && value < got + stride);
    }
  EXPECT_EQ(cuda::round_down(kHigh, 2), kHigh - 1);
  EXPECT_EQ(cuda::round_down(kLow, 2), kLow);
}

TEST(CudaIndex, PiecesCoverAllEntriesInOrder) {
  // NOLINTNEXTLINE(bugprone-random-generator-seed)
  std::mt19937 random(3);
  for (const int64_t most : {0, 3, 900, 200'000}) {
    std::vector<int64_t> bounds = {0};
    for (int row = 0; row < 50; ++row)
      bounds.push_back(bounds.back() + (row % 7 == 0 ? 0 : static_cast<int64_t>(random() % (most + 1))));
    const cuda::RowPieces cut(bounds);
    EXPECT_EQ(cut.row_pieces.empty(), most < 256);
    EXPECT_TRUE(std::is_sorted(cut.piece_bounds.begin(), cut.piece_bounds.end()));
    cuda::RowTable table;
    table.rows = 50;
    table.pieces = cut.pieces();
    table.piece_bounds = cut.piece_bounds.data();
    if (!cut.row_pieces.empty()) table.row_pieces = cut.row_pieces.data();
    for (int64_t row = 0; row < 50; ++row) {
      const int64_t first = table.whole() ? row : cut.row_pieces[row];
      const int64_t last = table.whole() ? row + 1 : cut.row_pieces[row + 1];
      EXPECT_LT(first, last);
      EXPECT_EQ(cut.piece_bounds[first], bounds[row]);
      EXPECT_EQ(cut.piece_bounds[last], bounds[row + 1]);
      for (int64_t place = bounds[row]; place < bounds[row + 1]; place += 97) EXPECT_EQ(table.row_of_place(place), row);
    }
  }
}

TEST(CudaIndex, OffsetsHaveBitsWhateverTheirNumber) {
  for (const int64_t offsets : {1, 27, 64, 65, 125, 343, 1'000'000}) {
    EXPECT_EQ(cuda::bit_of(0, offsets), 0);
    for (int64_t k = 1; k < std::min<int64_t>(offsets, 400); ++k)
      EXPECT_GE(cuda::bit_of(k, offsets), cuda::bit_of(k - 1, offsets));
    EXPECT_LE(cuda::bit_of(offsets - 1, offsets), 63);
  }
}

TEST(CudaIndex, SlicesCoverAllRowsOnce) {
  for (const int64_t rows :
       {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256}, int64_t{257}, int64_t{131073}, int64_t{5'000'000'000}}) {
    const cuda::RowSlices slices(rows);
    EXPECT_GE(slices.count, 1);
    EXPECT_LE(slices.count, cuda::RowSlices::kMost);
    int64_t at = 0;
    for (int64_t s = 0; s < slices.count; ++s) {
      EXPECT_EQ(slices.begin(s), at);
      at = slices.end(s);
    }
    EXPECT_EQ(at, rows);
  }
  for (const int64_t tiles : {int64_t{0}, int64_t{7}, int64_t{8}, int64_t{1000}, int64_t{33'554'432}})
    for (const int64_t weights : {int64_t{1}, int64_t{27 * 256 * 256}, int64_t{1} << 30}) {
      const cuda::WeightSlices slices(tiles, weights);
      EXPECT_GE(slices.count, 1);
      EXPECT_EQ(slices.begin(0), 0);
      EXPECT_EQ(slices.begin(slices.count), tiles);
      if (slices.count > 1) {
        EXPECT_LE(slices.count * weights, cuda::WeightSlices::kValues);
      }
    }
}

TEST(CudaIndex, PartsCoverAllOffsetsAndFewTilesHaveMany) {
  for (const int64_t offsets : {1, 2, 8, 27, 125})
    for (const int64_t blocks : {0, 1, 16, 100, 511, 512, 100'000}) {
      const cuda::OffsetParts parts(offsets, blocks);
      EXPECT_EQ(parts.begin(0), 0);
      EXPECT_EQ(parts.begin(parts.count), offsets);
      for (int64_t part = 0; part < parts.count; ++part)
        EXPECT_TRUE(parts.count == 1 || parts.begin(part + 1) - parts.begin(part) >= cuda::OffsetParts::kLeast);
    }
  EXPECT_EQ(cuda::OffsetParts(27, 16).count, 9);
  EXPECT_EQ(cuda::OffsetParts(27, 512).count, 1);
}

TEST(CudaIndex, ATileHasARangeOfOffsetsWhereItHasOneOfThem) {
  for (const int64_t offsets : {27, 64, 125}) {
    cuda::KernelTable table;
    EXPECT_TRUE(table.tile_has(0, 0, 0));
    table.offsets = offsets;
    for (int bit = 0; bit < 64; ++bit) {
      const uint64_t mask = uint64_t{1} << bit;
      table.tile_masks = &mask;
      for (int64_t first = 0; first < offsets; ++first)
        for (int64_t last = first; last < offsets; ++last) {
          bool any = false;
          for (int64_t k = first; k <= last; ++k) any = any || cuda::bit_of(k, offsets) == bit;
          ASSERT_EQ(table.tile_has(0, first, last), any) << first << " to " << last << ", bit " << bit;
        }
    }
  }
}

TEST(CudaIndex, CountsBeyond32BitsAreRight) {
  // The algebra alone: the greatest map that there can be, and a kernel of 125 offsets.
  cuda::KernelTable table;
  table.size = (int64_t{1} << 31) - 2;
  table.offsets = 125;
  EXPECT_EQ(table.tiles(), 33'554'432);
  EXPECT_EQ(table.in_row(124, table.size - 1), table.size - 1);
  EXPECT_EQ(table.in_row(124, table.size), -1);
  const cuda::WeightJob<float> job{nullptr, nullptr, nullptr, table, {table.tiles(), 125 * 64 * 8}, 1, 64, 8};
  EXPECT_EQ(job.blocks(32), job.slices.count * 125);
}

TEST(CudaIndex, TreesJoinNeighboursFirst) {
  for (int64_t count = 1; count < 70; ++count) {
    std::vector<std::string> pieces(count);
    for (int64_t i = 0; i < count; ++i) pieces[i] = std::string(1, static_cast<char>('0' + i));
    const std::string got = cuda::join_as_tree(
        count, [&](int64_t i) { return pieces[i]; },
        // NOLINTNEXTLINE(performance-inefficient-string-concatenation)
        [](const std::string& a, const std::string& b) { return "(" + a + b + ")"; });
    for (int64_t step = 1; step < count; step *= 2)
      for (int64_t i = 0; i + step < count; i += 2 * step) pieces[i] = "(" + pieces[i] + pieces[i + step] + ")";
    EXPECT_EQ(got, pieces[0]);
  }
}

}  // namespace
}  // namespace lockstep::sparse
