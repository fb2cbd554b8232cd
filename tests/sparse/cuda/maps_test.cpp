// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include "lockstep/base/error.h"
#include "sparse/coordinates/cuda/coordinates.h"
#include "sparse/cuda/twins.h"
#include "sparse/maps/cuda/tables.h"

namespace lockstep::sparse {
namespace {

using test::on_twin;
using test::random_cloud;
using test::twin_device;

void expect_same_map(const cuda::MadeMap& made, const CoordinateMap& map) {
  EXPECT_TRUE(at::equal(made.coordinates, map.coordinates()));
  EXPECT_TRUE(std::equal(made.order.begin(), made.order.end(), map.order().begin(), map.order().end()));
  EXPECT_EQ(made.keys.layout, map.keys().layout);
  EXPECT_EQ(made.keys.narrow, map.keys().narrow);
  EXPECT_TRUE(made.keys.wide == map.keys().wide);
  EXPECT_EQ(made.box.low, map.box().low);
  EXPECT_EQ(made.box.high, map.box().high);
}

void expect_same_insert(const at::Tensor& cloud) {
  const CoordinateMap::Inserted cpu = CoordinateMap::insert(cloud);
  const cuda::MadeMap made = cuda::insert("test", on_twin(cloud));
  expect_same_map(made, *cpu.map);
  ASSERT_EQ(made.unique.defined(), cpu.unique.defined());
  if (!cpu.unique.defined()) return;
  EXPECT_TRUE(at::equal(made.unique, cpu.unique));
  EXPECT_TRUE(at::equal(made.inverse, cpu.inverse));
}

TEST(TWIN_SUITE(CudaMaps), InsertAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const int64_t axes : {1, 2, 3, 5, 8})
    for (const int64_t high : {1, 4, 1000}) expect_same_insert(random_cloud(400, axes, -high, high, 3, 7));
  expect_same_insert(test::wide_cloud(300, 8));
  expect_same_insert(at::empty({0, 4}, at::kInt));
  expect_same_insert(at::full({1, 4}, 3, at::kInt));
  expect_same_insert(at::full({100, 3}, 5, at::kInt));                        // all in one voxel
  expect_same_insert(random_cloud(300, 3, -9, 9, 2, 4).slice(0, 0, 300, 2));  // not contiguous
  expect_same_insert(CoordinateMap::insert(random_cloud(300, 3, -9, 9, 2, 4))
                         .map->strided(AxisValues(3, 2))
                         ->coordinates());  // sorted already
}

TEST(TWIN_SUITE(CudaMaps), RefuseANegativeBatchIndex) {
  SKIP_WITHOUT_GPU();
  EXPECT_THROW(cuda::insert("test", on_twin(at::full({3, 3}, -1, at::kInt))), Error);
}

/// CoordinateMap::strided, as it goes for a map that a GPU has sorted.
cuda::MadeMap strided(const CoordinateMap& map, const CoordinateMap& expected, const AxisValues& stride) {
  return cuda::strided(map, stride, expected.box(), expected.keys().layout, twin_device);
}

TEST(TWIN_SUITE(CudaMaps), RoundDownAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const AxisValues& stride : {AxisValues{2, 2, 2}, AxisValues{3, 1, 5}, AxisValues{64, 64, 64}})
    for (const at::Tensor& cloud : {random_cloud(300, 3, -20, 20, 2, 9), test::wide_cloud(300, 8)}) {
      const CoordinateMapPtr map = CoordinateMap::insert(cloud).map, expected = map->strided(stride);
      expect_same_map(strided(*map, *expected, stride), *expected);
    }
}

void expect_same_pairs(const KernelMap& map) {
  const auto on_device = cuda::table_on_device(map, twin_device);
  cuda::KernelTable table = on_device->table;
  const auto fetch = [](const auto* data, int64_t count, at::ScalarType type) {
    return at::from_blob(const_cast<void*>(static_cast<const void*>(data)), {count},
                         at::TensorOptions(type).device(twin_device))
        .cpu();
  };
  const at::Tensor in_rows = fetch(table.in_rows, table.size * table.offsets, at::kInt);
  const at::Tensor out_rows = fetch(table.out_rows, table.size, at::kInt);
  const at::Tensor tile_masks = fetch(table.tile_masks, table.tiles(), at::kLong);
  table.in_rows = in_rows.const_data_ptr<int32_t>();
  table.out_rows = out_rows.const_data_ptr<int32_t>();
  table.tile_masks = reinterpret_cast<const uint64_t*>(tile_masks.const_data_ptr<int64_t>());
  std::vector<int32_t> outputs(table.out_rows, table.out_rows + table.size);
  std::sort(outputs.begin(), outputs.end());
  for (int64_t row = 0; row < table.size; ++row) ASSERT_EQ(outputs[row], row);
  for (int64_t k = 0; k < map.volume(); ++k) {
    std::vector<std::pair<int64_t, int64_t>> got, expected;
    for (int64_t slot = 0; slot < table.size; ++slot)
      if (table.in_row(k, slot) >= 0) {
        got.emplace_back(table.in_row(k, slot), table.out_row(slot));
        EXPECT_TRUE(table.tile_has(slot / cuda::kTileRows, k));
      }
    const at::Tensor rows = map.rows(k);
    for (int64_t i = 0; i < rows.size(1); ++i)
      expected.emplace_back(rows[0][i].item<int64_t>(), rows[1][i].item<int64_t>());
    std::sort(got.begin(), got.end());
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(got, expected) << "offset " << k;
  }
}

TEST(TWIN_SUITE(CudaMaps), FindThePairsThatTheCpuFinds) {
  SKIP_WITHOUT_GPU();
  for (const int64_t axes : {1, 2, 3, 4})
    for (const int64_t size : {1, 2, 3})
      for (const int64_t stride : {1, 2}) {
        const KernelMapPtr map = test::make_map(random_cloud(150, axes, -6, 6, 2, 5), size, stride);
        expect_same_pairs(*map);
        expect_same_pairs(*map->transposed());
      }
  expect_same_pairs(*test::make_map(test::wide_cloud(100, 8), 3, 1, 500'000'000));
  expect_same_pairs(*test::make_map(random_cloud(60, 2, -4, 4, 1, 3), 3, 1, 1000));  // offsets beyond the box
  expect_same_pairs(*test::make_map(random_cloud(150, 3, -4, 4, 2, 5), 5, 1));       // 125 offsets share bits
}

TEST(TWIN_SUITE(CudaMaps), FindPairsOfMapsThatPackTheirKeysDifferently) {
  SKIP_WITHOUT_GPU();
  const CoordinateMapPtr a = CoordinateMap::insert(random_cloud(150, 2, -6, 6, 1, 5)).map;
  const CoordinateMapPtr b = CoordinateMap::insert(random_cloud(150, 2, -300, 6, 1, 6)).map;
  const std::vector<int64_t> offsets = {0, 0, 1, -1, 0, 2};
  ASSERT_FALSE(a->keys().layout == b->keys().layout);
  expect_same_pairs(*KernelMap::deferred(a, b, offsets));
  expect_same_pairs(*KernelMap::deferred(b, a, offsets));
}

TEST(TWIN_SUITE(CudaMaps), AMapIsSearchedOnceForEachDirection) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = test::make_map(100, 3, 3, 2), back = map->transposed();
  EXPECT_EQ(cuda::table_on_device(*map, twin_device), cuda::table_on_device(*map, twin_device));
  EXPECT_EQ(cuda::table_on_device(*back, twin_device), cuda::table_on_device(*map->transposed(), twin_device));
  EXPECT_NE(cuda::table_on_device(*back, twin_device), cuda::table_on_device(*map, twin_device));
  EXPECT_EQ(map->bytes(), 0) << "the CPU has searched too";
}

TEST(TWIN_SUITE(CudaMaps), BothDirectionsOfAMapOntoItselfAreOneSearch) {
  SKIP_WITHOUT_GPU();
  const CoordinateMapPtr in = CoordinateMap::insert(random_cloud(150, 3, -4, 4, 2, 5)).map;
  for (const AxisValues& size : {AxisValues{3, 3, 3}, AxisValues{1, 3, 1}, AxisValues{5, 5, 5}}) {
    const auto offsets = KernelRegion::hypercube(size, AxisValues(3, 1)).offsets(AxisValues(3, 1));
    const KernelMapPtr map = KernelMap::deferred(in, in, offsets), back = map->transposed();
    const auto there = cuda::table_on_device(*map, twin_device), here = cuda::table_on_device(*back, twin_device);
    EXPECT_EQ(there->table.in_rows, here->table.in_rows);
    EXPECT_NE(there->table.mirrored, here->table.mirrored);
    expect_same_pairs(*map);
    expect_same_pairs(*back);
  }
  const std::vector<int64_t> one_sided = {-1, 0, 0, 0, 0, 0, 0, 0, 1};
  const KernelMapPtr map = KernelMap::deferred(in, in, one_sided), back = map->transposed();
  EXPECT_NE(cuda::table_on_device(*map, twin_device)->table.in_rows,
            cuda::table_on_device(*back, twin_device)->table.in_rows);
  expect_same_pairs(*map);
  expect_same_pairs(*back);
}

}  // namespace
}  // namespace lockstep::sparse
