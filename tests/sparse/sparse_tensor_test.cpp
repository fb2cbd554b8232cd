// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/sparse_tensor.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/sparse/detail/row_products.h"
#include "lockstep/sparse/operations.h"
#include "lockstep/sparse/tensor_field.h"
#include "support/clouds.h"
#include "support/gradcheck.h"

namespace lockstep::sparse {
namespace {

using test::Point;
using test::random_cloud;
using test::rows_of;
using test::to_points;
using test::to_tensor;

SparseTensor make_tensor(int64_t points, int64_t axes, int64_t channels, uint32_t seed,
                         CoordinateManagerPtr manager = nullptr) {
  at::manual_seed(seed);
  return {at::randn({points, channels}, at::kDouble),
          random_cloud(points, axes, -3, 3, 2, seed),
          {},
          Quantization::first,
          std::move(manager)};
}

TEST(SparseTensor, QuantizesEqualCoordinatesAsAsked) {
  const at::Tensor coordinates = random_cloud(60, 2, -2, 2, 2, 3);
  at::manual_seed(1);
  const at::Tensor features = at::randn({60, 3}, at::kDouble);
  const auto points = to_points(coordinates);
  for (const Quantization mode : {Quantization::first, Quantization::sum, Quantization::average, Quantization::max}) {
    const SparseTensor x(features, coordinates, {}, mode);
    const auto rows = rows_of(x.coordinates());
    ASSERT_EQ(x.size(), static_cast<int64_t>(std::set<Point>(points.begin(), points.end()).size()));
    for (const auto& [point, row] : rows) {
      std::vector<int64_t> members;
      for (size_t i = 0; i < points.size(); ++i)
        if (points[i] == point) members.push_back(static_cast<int64_t>(i));
      const at::Tensor all = features.index_select(0, at::tensor(members, at::kLong));
      const at::Tensor expected = mode == Quantization::first     ? all[0]
                                  : mode == Quantization::sum     ? all.sum(0)
                                  : mode == Quantization::average ? all.mean(0)
                                                                  : std::get<0>(all.max(0));
      EXPECT_TRUE(at::allclose(x.features()[row], expected));
      for (const int64_t member : members) EXPECT_EQ(x.inverse_mapping()[member].item<int64_t>(), row);
      EXPECT_EQ(x.unique_index()[row].item<int64_t>(), members[0]);
    }
    lockstep::test::expect_gradients(
        [&](const std::vector<at::Tensor>& in) { return SparseTensor(in[0], coordinates, {}, mode).features(); },
        {features});
  }
  EXPECT_THROW(SparseTensor(features, coordinates, {}, Quantization::none), Error);
}

TEST(SparseTensor, KeepsTheOrderOfDifferentCoordinates) {
  const at::Tensor coordinates = to_tensor({{1, 5}, {0, 7}, {1, -5}, {0, 0}}, 2),
                   features = at::arange(4.0).unsqueeze(1);
  const SparseTensor x(features, coordinates);
  EXPECT_TRUE(at::equal(x.coordinates(), coordinates) && at::equal(x.features(), features));
  EXPECT_TRUE(at::equal(x.inverse_mapping(), at::arange(4)));
}

TEST(SparseTensor, OfSortedCoordinatesIsTheSameTensor) {
  const at::Tensor mixed = random_cloud(200, 3, -3, 3, 3, 5);
  const at::Tensor ascending =
      CoordinateMap::united(std::vector<CoordinateMapPtr>{CoordinateMap::insert(mixed).map})->coordinates();
  const at::Tensor features = at::randn({ascending.size(0), 2});
  const SparseTensor usual(features, ascending), sorted(features, points::SortedCoordinates(ascending));
  EXPECT_TRUE(sorted.coordinates().is_same(ascending));
  EXPECT_EQ(sorted.key(), usual.key());
  EXPECT_TRUE(at::equal(sorted.features(), usual.features()));
  EXPECT_TRUE(at::equal(sorted.features_at_coordinates(mixed), usual.features_at_coordinates(mixed)));
  EXPECT_EQ(sorted.batch_size(), usual.batch_size());
  const LayerGeometry geometry{KernelRegion::hypercube({2, 2, 2}, {1, 1, 1}), {2, 2, 2}};
  const SparseTensor a = pool(usual, Pooling::sum, geometry), b = pool(sorted, Pooling::sum, geometry);
  EXPECT_TRUE(at::equal(a.coordinates(), b.coordinates()) && at::equal(a.features(), b.features()));
  EXPECT_THROW(SparseTensor(at::randn({3, 2}), points::SortedCoordinates(ascending)), Error);
  EXPECT_THROW(SparseTensor(features, points::SortedCoordinates()), Error);
  EXPECT_THROW(SparseTensor(features, points::SortedCoordinates(ascending), std::make_shared<CoordinateManager>(2)),
               Error);
}

TEST(SparseTensor, ComputesOnTheUnionOfCoordinates) {
  const auto manager = std::make_shared<CoordinateManager>(2);
  const SparseTensor a = make_tensor(25, 2, 2, 4, manager), b = make_tensor(25, 2, 2, 5, manager);
  ASSERT_NE(a.key(), b.key());
  const auto rows_a = rows_of(a.coordinates()), rows_b = rows_of(b.coordinates());
  const SparseTensor sum = a + b, product = a * b, united = unite({a, b, a});
  std::set<Point> all;
  for (const auto* rows : {&rows_a, &rows_b})
    for (const auto& [point, row] : *rows) all.insert(point);
  EXPECT_EQ(to_points(sum.coordinates()), std::vector<Point>(all.begin(), all.end()));
  int64_t row = 0;
  for (const Point& point : all) {
    const auto at_a = rows_a.find(point), at_b = rows_b.find(point);
    const at::Tensor zero = at::zeros({2}, at::kDouble);
    const at::Tensor x = at_a == rows_a.end() ? zero : a.features()[at_a->second];
    const at::Tensor y = at_b == rows_b.end() ? zero : b.features()[at_b->second];
    EXPECT_TRUE(at::equal(sum.features()[row], x + y) && at::equal(product.features()[row], x * y));
    EXPECT_TRUE(at::allclose(united.features()[row], 2 * x + y));
    ++row;
  }
  EXPECT_TRUE(at::equal((-a).features(), -a.features()));
  EXPECT_TRUE(at::equal((2 - a / 4).features(), 2 - a.features() / 4));
  EXPECT_TRUE(at::equal(pow(a, 2).features(), a.features() * a.features()));
  EXPECT_THROW(a + make_tensor(25, 2, 2, 5), Error);
  EXPECT_THROW(cat({a, b}), Error);
  EXPECT_TRUE(at::equal(cat({a, a * 2}).features(), at::cat({a.features(), a.features() * 2}, 1)));
  EXPECT_TRUE(at::allclose(stack_var({a, a * 3}).features(), a.features() * a.features()));
  EXPECT_TRUE(at::allclose(stack_mean({a, a * 3}).features(), a.features() * 2));
}

TEST(SparseTensor, BecomesDenseAndSparseAgain) {
  for (const int64_t axes : {1, 2, 3, 4}) {
    const SparseTensor x = make_tensor(40, axes, 3, 7);
    const auto [dense, corner] = x.dense();
    const auto points = to_points(x.coordinates());
    for (size_t i = 0; i < points.size(); ++i) {
      at::Tensor cell = dense[points[i][0]];
      for (int64_t axis = 0; axis < axes; ++axis)
        cell = cell.select(1, points[i][axis + 1] - corner[axis].item<int64_t>());
      EXPECT_TRUE(at::equal(cell, x.features()[i]));
    }
    EXPECT_NEAR(dense.abs().sum().item<double>(), x.features().abs().sum().item<double>(), 1e-9);
    const SparseTensor back = to_sparse(dense);
    EXPECT_EQ(back.size(), x.size());
    EXPECT_TRUE(at::equal(back.dense(dense.sizes().vec(), AxisValues(axes, 0)).first, dense));
    EXPECT_EQ(to_sparse(dense, false).size(), dense.numel() / 3);
  }
  const SparseTensor x = make_tensor(40, 2, 3, 8);
  EXPECT_THROW(x.dense(std::vector<int64_t>{2, 3, 1, 1}), Error);
  EXPECT_THROW(x.dense(std::vector<int64_t>{2, 4, 9, 9}), Error);
  lockstep::test::expect_gradients(
      [&](const std::vector<at::Tensor>& in) { return x.with_features(in[0]).dense().first; }, {x.features()});
}

TEST(SparseTensor, RefusesDenseTensorsThatCannotBe) {
  const SparseTensor x(at::zeros({2, 1}), to_tensor({{0, 0, 0, 0}, {0, 2000000000, 2000000000, 2000000000}}, 4));
  EXPECT_THROW(x.dense(), Error);
  EXPECT_THROW(x.dense(std::vector<int64_t>{1, 1, -1, 5, 5}), Error);
  EXPECT_THROW(x.dense(std::nullopt, AxisValues{std::numeric_limits<int64_t>::min(), 0, 0}), Error);
}

TEST(SparseTensor, TakesItselfApartByBatch) {
  const SparseTensor x(at::arange(5.0).unsqueeze(1), to_tensor({{3, 1}, {0, 2}, {3, 4}, {1, 5}, {0, 6}}, 2));
  EXPECT_EQ(x.batch_indices(), (std::vector<int64_t>{0, 1, 3}));
  const auto features = x.decomposed_features();
  ASSERT_EQ(features.size(), 4u);
  EXPECT_EQ(features[2].size(0), 0);
  EXPECT_TRUE(at::equal(features[3].squeeze(1), at::tensor({0.0f, 2.0f})));
  EXPECT_TRUE(at::equal(x.coordinates_at(0).squeeze(1), at::tensor({2, 6}, at::kInt)));
  EXPECT_EQ(x.features_at(9).size(0), 0);
}

TEST(SparseTensor, PrunesRows) {
  const SparseTensor x = make_tensor(40, 3, 2, 9);
  const at::Tensor keep = x.features().select(1, 0) > 0;
  const SparseTensor y = prune(x, keep);
  EXPECT_TRUE(at::equal(y.features(), x.features().index({keep})) &&
              at::equal(y.coordinates(), x.coordinates().index({keep})));
  EXPECT_EQ(prune(x, at::zeros_like(keep)).size(), 0);
  lockstep::test::expect_gradients(
      [&](const std::vector<at::Tensor>& in) { return prune(x.with_features(in[0]), keep).features(); },
      {x.features()});
  EXPECT_THROW(prune(x, keep.slice(0, 1)), Error);
}

TEST(SparseTensor, InterpolatesLinearly) {
  const SparseTensor x = make_tensor(60, 2, 2, 10);
  at::manual_seed(2);
  const at::Tensor points = at::cat({at::zeros({30, 1}, at::kDouble), at::randn({30, 2}, at::kDouble) * 2}, 1);
  const auto rows = rows_of(x.coordinates());
  const at::Tensor got = x.interpolate(points);
  for (int64_t i = 0; i < 30; ++i) {
    at::Tensor expected = at::zeros({2}, at::kDouble);
    for (const auto& [point, row] : rows) {
      const double dx = std::abs(points[i][1].item<double>() - point[1]),
                   dy = std::abs(points[i][2].item<double>() - point[2]);
      if (point[0] == 0 && dx < 1 && dy < 1) expected += (1 - dx) * (1 - dy) * x.features()[row];
    }
    EXPECT_TRUE(at::allclose(got[i], expected));
  }
  EXPECT_TRUE(at::equal(x.features_at_coordinates(x.coordinates()), x.features()));
  lockstep::test::expect_gradients(
      [&](const std::vector<at::Tensor>& in) { return x.with_features(in[0]).interpolate(points); }, {x.features()});
  // At a point of the grid no other corner matters, though it lie outside int32.
  const SparseTensor far(at::ones({1, 1}), to_tensor({{0, 2147483647}}, 2));
  EXPECT_EQ(far.interpolate(at::tensor({0.0, 2147483647.0}, at::kDouble).view({1, 2})).item<float>(), 1);
  EXPECT_THROW(global_pool(x, Pooling::sum).interpolate(points), Error);
}

TEST(SparseTensor, ComputesWithTensors) {
  const SparseTensor x = {at::randn({5, 3}, at::kDouble), random_cloud(5, 2, 0, 90, 1, 3)};
  const at::Tensor rows = at::randn({5, 3}, at::kDouble), one = at::randn({5, 1}, at::kDouble);
  for (const at::Tensor& other : {rows, one, at::randn({1, 3}, at::kDouble), at::randn({3}, at::kDouble),
                                  at::randn({1}, at::kDouble), at::randn({}, at::kDouble)}) {
    EXPECT_TRUE(at::equal((x + other).features(), x.features() + other));
    EXPECT_TRUE(at::equal((x - other).features(), x.features() - other));
    EXPECT_TRUE(at::equal((x * other).features(), x.features() * other));
    EXPECT_TRUE(at::equal((x / other).features(), x.features() / other));
    lockstep::test::expect_gradients(
        [&](const std::vector<at::Tensor>& in) { return (x.with_features(in[0]) / (in[1] * in[1] + 1)).features(); },
        {x.features(), other});
  }
  EXPECT_THROW(x + at::randn({4, 3}, at::kDouble), Error);
  EXPECT_THROW(x * at::randn({2}, at::kDouble), Error);
  EXPECT_THROW(x * at::randn({3}), Error);
}

TEST(SparseTensor, LooksForNaNOnlyWhenAsked) {
  at::Tensor features = at::zeros({4, 2});
  features[2][1] = std::numeric_limits<float>::quiet_NaN();
  const SparseTensor x(features, to_tensor({{0, 1}, {0, 2}, {0, 7}, {1, 0}}, 2));
  try {
    x.check_finite();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("1 of 4 rows"));
    EXPECT_THAT(error.what(), testing::HasSubstr("row 2"));
  }
  EXPECT_EQ(x.with_features(at::zeros({4, 2})).check_finite().size(), 4);
}

TEST(SparseTensor, ThatIsNoneIsAnErrorAndNoCrash) {
  const SparseTensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.to_string(), "SparseTensor()");
  EXPECT_THROW(none.manager(), Error);
  EXPECT_THROW(none.coordinates(), Error);
  EXPECT_THROW(none + none, Error);
  EXPECT_THROW(none.features_at_coordinates(to_tensor({{0, 0}}, 2)), Error);
  EXPECT_THROW(none.dimension(), Error);
  EXPECT_THROW(none.dense(), Error);
  EXPECT_THROW(none.batch_indices(), Error);
  EXPECT_THROW(none.interpolate(at::zeros({1, 2})), Error);
  EXPECT_THROW(TensorField().sparse(), Error);
  EXPECT_THROW(stack_sum({}), Error);
}

TEST(SparseTensor, SaysWhatDoesNotFit) {
  const at::Tensor c = to_tensor({{0, 2, 2}, {0, 4, 4}}, 3);
  EXPECT_THROW(SparseTensor(at::zeros({3, 1}), c), Error);
  EXPECT_THROW(SparseTensor(at::zeros({2}), c), Error);
  EXPECT_THROW(SparseTensor(at::zeros({2, 1}, at::kLong), c), Error);
  EXPECT_THROW(SparseTensor(at::zeros({2, 1}), c.to(at::kFloat)), Error);
  EXPECT_THROW(SparseTensor(at::zeros({2, 1}), c, {4, 4}), Error);  // 2 is no multiple of 4
  EXPECT_THROW(SparseTensor(at::zeros({2, 1}), c, {2}), Error);
  const SparseTensor x(at::zeros({2, 1}), c, {2, 2});
  EXPECT_THROW(SparseTensor(at::zeros({2, 1}), CoordinateMapKey{{8, 8}, ""}, x.manager()), Error);
  EXPECT_THROW(x.with_features(at::zeros({3, 1})), Error);
  EXPECT_THAT(x.to_string(), testing::HasSubstr("2 points"));
}

TEST(TensorField, BecomesSparseAndIsSlicedBack) {
  at::manual_seed(5);
  const at::Tensor points = at::cat({at::randint(0, 2, {80, 1}).to(at::kFloat), at::randn({80, 2}) * 2}, 1);
  const at::Tensor features = at::randn({80, 3}, at::kDouble);
  const TensorField field(features, points);
  const SparseTensor x = field.sparse();
  const at::Tensor voxels = points.floor().to(at::kInt);
  const auto rows = rows_of(x.coordinates());
  const auto listed = to_points(voxels);
  at::Tensor sum = at::zeros({x.size(), 3}, at::kDouble), count = at::zeros({x.size(), 1}, at::kDouble);
  for (int64_t i = 0; i < 80; ++i) {
    sum[rows.at(listed[i])] += features[i];
    count[rows.at(listed[i])] += 1;
    EXPECT_EQ(field.inverse_mapping(x)[i].item<int64_t>(), rows.at(listed[i]));
  }
  EXPECT_TRUE(at::allclose(x.features(), sum / count));
  EXPECT_TRUE(at::equal(field.slice(x).features(), x.features().index_select(0, field.inverse_mapping(x))));
  EXPECT_EQ(field.cat_slice(x).features().size(1), 6);
  EXPECT_EQ(field.sparse({2, 2}).tensor_stride(), (AxisValues{2, 2}));
  // splat is the adjoint of interpolation on the coordinates it makes.
  const SparseTensor splat = field.splat();
  const SparseTensor other = splat.with_features(at::randn({splat.size(), 3}, at::kDouble));
  EXPECT_NEAR((splat.features() * other.features()).sum().item<double>(),
              (field.features() * other.interpolate(points)).sum().item<double>(), 1e-6);
  EXPECT_THROW(TensorField(at::zeros({1, 1}), at::full({1, 3}, NAN)), Error);
  EXPECT_THROW(TensorField(at::zeros({1, 1}), at::full({1, 3}, 1e12)), Error);
}

TEST(SparseQuantize, MarksConflictingLabels) {
  const at::Tensor points = at::tensor({0.1, 0.2, 0.9, 0.1, 1.5, 0.0, 1.6, 0.3, -0.1, 0.0}).reshape({5, 2});
  const auto q = sparse_quantize(points, at::arange(5.0).unsqueeze(1), at::tensor({4, 4, 7, 8, 9}, at::kLong), -1);
  EXPECT_TRUE(at::equal(q.coordinates, at::tensor({0, 0, 1, 0, -1, 0}, at::kInt).reshape({3, 2})));
  EXPECT_TRUE(at::equal(q.labels, at::tensor({4, -1, 9}, at::kLong)));
  EXPECT_TRUE(at::equal(q.unique, at::tensor({0, 2, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(q.inverse, at::tensor({0, 0, 1, 1, 2}, at::kLong)));
  const auto joined = sparse_collate({q.coordinates, q.coordinates}, {q.features, q.features});
  EXPECT_EQ(joined.coordinates.size(0), 6);
  EXPECT_EQ(joined.coordinates[5][0].item<int>(), 1);
}

TEST(Rows, MultiplyASparseMatrix) {
  at::manual_seed(3);
  const at::Tensor rows = at::randint(0, 7, {40}, at::kLong), columns = at::randint(0, 9, {40}, at::kLong);
  const std::vector<at::Tensor> inputs = {at::randn({40}, at::kDouble), at::randn({9, 3}, at::kDouble)};
  at::Tensor dense = at::zeros({7, 9}, at::kDouble);
  for (int64_t i = 0; i < 40; ++i) dense[rows[i].item<int64_t>()][columns[i].item<int64_t>()] += inputs[0][i];
  const auto f = [&](const std::vector<at::Tensor>& in) { return spmm(rows, columns, in[0], 7, in[1]); };
  EXPECT_TRUE(at::allclose(f(inputs), dense.matmul(inputs[1])));
  lockstep::test::expect_gradients(f, inputs);
  lockstep::test::expect_second_gradients(f, inputs);
  EXPECT_THROW(spmm(rows, columns, inputs[0], 3, inputs[1]), Error);
}

}  // namespace
}  // namespace lockstep::sparse
