// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "lockstep/sparse/detail/row_products.h"
#include "sparse/cuda/twins.h"
#include "sparse/maps/cuda/row_lengths.h"

namespace lockstep::sparse {
namespace {

using test::expect_close;
using test::expect_twin;
using test::make_map;
using test::on_twin;
using test::random;
using test::random_cloud;
using test::tolerance_of;

void expect_convolutions(const KernelMapPtr& map, int64_t in, int64_t out, int64_t groups, at::ScalarType type) {
  SCOPED_TRACE(testing::Message() << c10::toString(type) << " " << in << " -> " << out << " in " << groups
                                  << " groups, " << map->volume() << " offsets");
  at::manual_seed(3);
  const at::Tensor x = random({map->in_size(), in}, type), w = random({map->volume(), in / groups, out}, type),
                   g = random({map->out_size(), out}, type);
  const at::Tensor tx = on_twin(x), tw = on_twin(w), tg = on_twin(g);
  const KernelMapPtr back = map->transposed();
  const double tolerance = tolerance_of(type);
  expect_twin([&] { return cuda::convolution(tx, tw, map, false, groups); }, cpu::convolution(x, w, map, false, groups),
              tolerance);
  expect_twin([&] { return cuda::convolution(tg, tw, back, true, groups); }, cpu::convolution(g, w, back, true, groups),
              tolerance);
  expect_twin([&] { return cuda::convolution_weight(tx, tg, map, groups); }, cpu::convolution_weight(x, g, map, groups),
              tolerance);
}

TEST(TWIN_SUITE(CudaOperations), ConvolveAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const int64_t axes : {1, 2, 3, 4})
    for (const int64_t stride : {1, 2})
      expect_convolutions(make_map(200, axes, axes > 3 ? 2 : 3, stride), 5, 7, 1, at::kDouble);
}

TEST(TWIN_SUITE(CudaOperations), ConvolveAnyNumberOfChannels) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = make_map(150, 2, 2, 1);
  for (const auto& [in, out] :
       {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {17, 33}, {64, 64}, {65, 65}, {3, 130}, {100, 20}, {0, 5}, {5, 0}})
    expect_convolutions(map, in, out, 1, at::kDouble);
}

TEST(TWIN_SUITE(CudaOperations), ConvolveGroups) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = make_map(150, 2, 3, 2);
  expect_convolutions(map, 6, 9, 3, at::kDouble);
  expect_convolutions(map, 70, 140, 2, at::kDouble);
  expect_convolutions(map, 8, 8, 8, at::kDouble);
}

TEST(TWIN_SUITE(CudaOperations), ConvolveEveryType) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = make_map(300, 3, 3, 1);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16})
    for (const int64_t out : {20, 40}) expect_convolutions(map, 20, out, 1, type);
}

// Channels that are a multiple of 16 bytes move in whole packs; rows that begin elsewhere do not.
TEST(TWIN_SUITE(CudaOperations), ConvolveAsWellInWholePacks) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = make_map(150, 2, 2, 1), strided = make_map(150, 2, 2, 2);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    expect_convolutions(map, 40, 72, 1, type);
    expect_convolutions(strided, 144, 32, 2, type);
    const at::Tensor x = random({map->in_size() * 32 + 1}, type).slice(0, 1).view({map->in_size(), 32}),
                     w = random({map->volume(), 32, 8}, type);
    const at::Tensor tx = on_twin(at::cat({x.new_zeros(1), x.flatten()})).slice(0, 1).view(x.sizes());
    EXPECT_TRUE(at::equal(cuda::convolution(tx, on_twin(w), map, false, 1),
                          cuda::convolution(on_twin(x.clone()), on_twin(w), map, false, 1)));
  }
}

TEST(TWIN_SUITE(CudaOperations), ConvolveInTf32OnRequest) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(5);
  const KernelMapPtr map = make_map(300, 3, 3, 1);
  const auto set = [](at::Float32Precision precision) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, precision);
  };
  for (const int64_t out : {20, 40}) {
    const at::Tensor x = at::randn({map->in_size(), 33}), w = at::randn({27, 33, out}),
                     g = at::randn({map->out_size(), out});
    const auto forward = [&] { return cuda::convolution(on_twin(x), on_twin(w), map, false, 1); };
    const auto weight = [&] { return cuda::convolution_weight(on_twin(x), on_twin(g), map, 1); };
    const at::Tensor exact = forward();
    set(at::Float32Precision::TF32);
    const at::Tensor fast = forward(), dw = weight();
    set(at::Float32Precision::IEEE);
    EXPECT_FALSE(at::equal(fast, exact));
    expect_close(fast, cpu::convolution(x, w, map, false, 1), 2e-3);
    expect_close(dw, cpu::convolution_weight(x, g, map, 1), 2e-3);
    expect_close(forward(), cpu::convolution(x, w, map, false, 1), 2e-6);
  }
}

TEST(TWIN_SUITE(CudaOperations), ConvolveKernelsOfManyOffsets) {
  SKIP_WITHOUT_GPU();
  expect_convolutions(make_map(150, 3, 5, 1), 3, 4, 1, at::kDouble);
}

// Several offsets pass in one step, and their weights' gradients are one block's work.
TEST(TWIN_SUITE(CudaOperations), ConvolveFewChannels) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr cube = make_map(100, 3, 3, 1), square = make_map(random_cloud(100, 2, -9, 9, 2, 3), 3, 2);
  for (const at::ScalarType type : {at::kDouble, at::kHalf})
    for (const int64_t channels : {1, 3, 8, 16, 31}) {
      expect_convolutions(cube, channels, 8, 1, type);
      expect_convolutions(square, 2 * channels, 16, 2, type);
    }
  expect_convolutions(make_map(100, 3, 5, 1), 3, 32, 1, at::kHalf);
}

TEST(TWIN_SUITE(CudaOperations), ConvolveWhatIsDenseOrEmpty) {
  SKIP_WITHOUT_GPU();
  expect_convolutions(KernelMap::identity(131), 20, 40, 2, at::kDouble);
  expect_convolutions(KernelMap::identity(0), 4, 4, 1, at::kDouble);
  const CoordinateMapPtr some = CoordinateMap::insert(random_cloud(70, 2, -5, 5, 1, 2)).map;
  const CoordinateMapPtr none = CoordinateMap::insert(at::empty({0, 3}, at::kInt)).map;
  const std::vector<int64_t> offsets = {0, 0, 0, 1};
  expect_convolutions(KernelMap::deferred(none, some, offsets), 4, 4, 1, at::kDouble);
  expect_convolutions(KernelMap::deferred(some, none, offsets), 4, 4, 1, at::kDouble);
}

TEST(TWIN_SUITE(CudaOperations), CutLongWeightGradientsIntoSlices) {
  SKIP_WITHOUT_GPU();
  expect_convolutions(KernelMap::identity(3 * 8 * 64 + 5), 3, 4, 1, at::kDouble);
  expect_convolutions(make_map(random_cloud(2500, 3, -9, 9, 1, 4), 3, 1), 3, 4, 1, at::kFloat);
}

TEST(TWIN_SUITE(CudaOperations), TakeInputsThatAreNotContiguous) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = make_map(100, 2, 2, 1);
  const at::Tensor x = at::randn({4, map->in_size()}, at::kDouble).t();
  const at::Tensor w = at::randn({map->volume(), 5, 4}, at::kDouble).transpose(1, 2);
  expect_close(cuda::convolution(on_twin(x), on_twin(w), map, false, 1), cpu::convolution(x, w, map, false, 1), 1e-12);
}

TEST(TWIN_SUITE(CudaOperations), ConvolveChannelByChannel) {
  SKIP_WITHOUT_GPU();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16})
    for (const int64_t stride : {1, 2}) {
      const KernelMapPtr map = make_map(700, 2, 3, stride);
      const at::Tensor x = random({map->in_size(), 5}, type), w = random({map->volume(), 5}, type),
                       g = random({map->out_size(), 5}, type);
      const at::Tensor tx = on_twin(x), tw = on_twin(w), tg = on_twin(g);
      expect_twin([&] { return cuda::channelwise(tx, tw, map); }, cpu::channelwise(x, w, map), tolerance_of(type));
      expect_twin([&] { return cuda::channelwise_weight(tx, tg, map); }, cpu::channelwise_weight(x, g, map),
                  tolerance_of(type));
    }
}

/// Rows of very different lengths, some without entries; or of one entry at most.
RowMapPtr make_rows(int64_t rows, int64_t entries, bool whole) {
  at::manual_seed(5);
  if (whole) return RowMap::from_index(at::randint(-1, 50, {rows}, at::kLong), 50);
  at::Tensor row = at::randint(0, rows, {entries}, at::kLong);
  row.narrow(0, 0, entries / 2).fill_(rows / 2);
  return RowMap::from_entries(row, at::randint(0, 50, {entries}, at::kLong), rows, 50);
}

TEST(TWIN_SUITE(CudaOperations), SumRowsAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const bool whole : {true, false})
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      const RowMapPtr map = make_rows(40, 3000, whole);
      const at::Tensor x = random({50, 3}, type), w = random({map->entry_count()}, type), g = random({40, 3}, type);
      const at::Tensor tx = on_twin(x), tw = on_twin(w), tg = on_twin(g);
      const double tolerance = 4 * tolerance_of(type);  // sums of thousands
      expect_twin([&] { return cuda::row_sum(tx, map, std::nullopt); }, cpu::row_sum(x, map, std::nullopt), tolerance);
      expect_twin([&] { return cuda::row_sum(tx, map, tw); }, cpu::row_sum(x, map, w), tolerance);
      expect_twin([&] { return cuda::row_sum(tg, map->transposed(), tw); }, cpu::row_sum(g, map->transposed(), w),
                  tolerance);
      expect_twin([&] { return cuda::row_dot(tg, tx, map); }, cpu::row_dot(g, x, map), tolerance);
    }
}

TEST(TWIN_SUITE(CudaOperations), ChooseRowsAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const bool whole : {true, false})
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      const RowMapPtr map = make_rows(40, 3000, whole);
      at::Tensor x = random({50, 3}, type);
      x[3][1] = NAN;
      x[4].fill_(9);  // equal ones: the first is chosen
      x[5].fill_(9);
      const at::Tensor g = random({40, 3}, type), chosen = cpu::row_argmax(x, map);
      const at::Tensor tx = on_twin(x), tg = on_twin(g), t_chosen = on_twin(chosen);
      expect_twin([&] { return cuda::row_argmax(tx, map); }, chosen, 0);
      expect_twin([&] { return cuda::row_pick(tx, map, t_chosen); }, cpu::row_pick(x, map, chosen), 0);
      expect_twin([&] { return cuda::row_unpick(tg, map, t_chosen); }, cpu::row_unpick(g, map, chosen),
                  tolerance_of(type));
    }
}

TEST(TWIN_SUITE(CudaOperations), RowsHaveLengths) {
  SKIP_WITHOUT_GPU();
  const RowMapPtr map = make_rows(40, 300, false);
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    expect_close(cuda::row_lengths(*map, test::twin_device, type),
                 cpu::row_sum(at::ones({50, 1}, type), map, std::nullopt).squeeze(1), 0);
}

TEST(TWIN_SUITE(CudaOperations), TakeRowMapsThatAreEmpty) {
  SKIP_WITHOUT_GPU();
  const at::Tensor none = at::empty({0}, at::kLong);
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{0, 0}, {3, 0}, {0, 3}, {3, 4}}) {
    const RowMapPtr map = RowMap::from_entries(none, none, out, in);
    const at::Tensor x = at::randn({in, 2}), g = at::randn({out, 2});
    expect_close(cuda::row_sum(on_twin(x), map, std::nullopt), at::zeros({out, 2}), 0);
    expect_close(cuda::row_argmax(on_twin(x), map), at::full({out, 2}, -1, at::kLong), 0);
    expect_close(cuda::row_pick(on_twin(x), map, on_twin(at::full({out, 2}, -1, at::kLong))), at::zeros({out, 2}), 0);
    expect_close(cuda::row_unpick(on_twin(g), map, on_twin(at::full({out, 2}, -1, at::kLong))), at::zeros({in, 2}), 0);
    expect_close(cuda::row_dot(on_twin(g), on_twin(x), map), at::empty({0}), 0);
  }
}

TEST(TWIN_SUITE(CudaOperations), SumColumnsAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16})
    for (const int64_t rows : {0, 1, 700, 17000}) {  // of which the last are more slices than one thread joins
      const at::Tensor x = random({rows, 4}, type) + 3;
      expect_twin([tx = on_twin(x)] { return cuda::column_sum(tx); }, cpu::column_sum(x), tolerance_of(type));
    }
}

TEST(TWIN_SUITE(CudaOperations), RefuseTypesThatAreNotFloating) {
  SKIP_WITHOUT_GPU();
  const at::Tensor x = on_twin(at::ones({3, 4}, at::kInt));
  EXPECT_THROW(cuda::column_sum(x), c10::Error);
  EXPECT_THROW(cuda::row_sum(x, RowMap::from_index(at::arange(3), 3), std::nullopt), c10::Error);
  EXPECT_THROW(cuda::convolution(x, on_twin(at::ones({1, 4, 2}, at::kInt)), KernelMap::identity(3), false, 1),
               c10::Error);
}

}  // namespace
}  // namespace lockstep::sparse
