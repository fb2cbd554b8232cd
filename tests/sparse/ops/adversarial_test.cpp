// SPDX-License-Identifier: Apache-2.0
// Layers on inputs that are made to break them, in one to five dimensions, each against its definition in float64 and
// for one, two and four threads.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/sparse/convolution.h"
#include "lockstep/sparse/operations.h"
#include "support/clouds.h"

namespace lockstep::sparse {
namespace {

using test::Point;

constexpr int64_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();

struct Cloud {
  const char* name;
  std::vector<Point> points;
  bool extreme = false;  // reaches the limits of int32
};

Point at_all(int64_t batch, int64_t axes, int64_t value) {
  Point point(axes + 1, value);
  point[0] = batch;
  return point;
}

std::vector<Cloud> clouds(int64_t axes) {
  std::vector<Cloud> all = {{"nothing", {}}, {"one point", {at_all(0, axes, -7)}}};
  Cloud one_voxel{"all points in one voxel", {}};
  for (int i = 0; i < 40; ++i) one_voxel.points.push_back(at_all(2, axes, -1));
  all.push_back(one_voxel);
  Cloud line{"a line", {}};
  for (int64_t i = -15; i < 15; ++i) {
    line.points.push_back(at_all(1, axes, 0));
    line.points.back()[1 + i % axes * (i % axes > 0)] = i;
  }
  all.push_back(line);
  const int64_t reach = axes == 1 ? 40 : axes == 2 ? 6 : 2;
  all.push_back(
      {"negative and positive, duplicates", test::to_points(test::random_cloud(40, axes, -reach, reach, 2, 3))});
  Cloud gap{"batch entries without points", test::to_points(test::random_cloud(30, axes, 0, 2 * reach, 2, 4))};
  for (Point& point : gap.points) point[0] = point[0] * 5 + 1;
  all.push_back(gap);
  Cloud far{"two groups far apart", {}};
  for (Point point : test::to_points(test::random_cloud(16, axes, 0, 2, 1, 5))) {
    far.points.push_back(point);
    for (int64_t axis = 1; axis <= std::min<int64_t>(axes, 3); ++axis) point[axis] += 1'000'000'007;
    far.points.push_back(point);
  }
  all.push_back(far);
  if (axes <= 3) {
    Cloud limits{"the limits of int32", {}, true};
    for (const int64_t end : {kLow, kHigh})
      for (int64_t step = 0; step < 3; ++step)
        limits.points.push_back(at_all(0, axes, end == kLow ? end + step : end - step));
    all.push_back(limits);
  }
  return all;
}

struct Layer {
  const char* name;
  LayerGeometry geometry;
};

std::vector<Layer> layers(int64_t axes) {
  const AxisValues ones(axes, 1), twos(axes, 2);
  const KernelRegion two = KernelRegion::hypercube(twos, ones);
  const KernelRegion three = axes <= 3 ? KernelRegion::hypercube(AxisValues(axes, 3), ones)
                                       : KernelRegion::hypercross(AxisValues(axes, 3), ones);
  std::vector<int64_t> offsets(2 * axes, 0);  // one of them twice
  offsets[0] = offsets[axes] = 2;
  return {{"size 3", {three, ones}},
          {"size 3 dilated", {KernelRegion::hypercross(AxisValues(axes, 3), AxisValues(axes, 3)), ones}},
          {"size 3 stride 2", {three, twos}},
          {"size 2 stride 2", {two, twos}},
          {"stride beyond the extent", {two, AxisValues(axes, 1000)}},
          {"offsets", {KernelRegion::with_offsets(offsets, ones), ones}}};
}

struct Pair {
  int64_t k, in, out;
};

/// in = out + offset, from the definition; exchanged for a transposed layer.
std::vector<Pair> pairs_of(const at::Tensor& in, const at::Tensor& out, const std::vector<int64_t>& offsets,
                           bool transposed) {
  const auto rows = test::rows_of(in);
  const auto outputs = test::to_points(out);
  const int64_t axes = in.size(1) - 1;
  std::vector<Pair> pairs;
  for (size_t row = 0; row < outputs.size(); ++row)
    for (int64_t k = 0; k * axes < static_cast<int64_t>(offsets.size()); ++k) {
      Point point = outputs[row];
      for (int64_t axis = 0; axis < axes; ++axis)
        point[axis + 1] += transposed ? -offsets[k * axes + axis] : offsets[k * axes + axis];
      const auto found = rows.find(point);
      if (found != rows.end()) pairs.push_back({k, found->second, static_cast<int64_t>(row)});
    }
  return pairs;
}

bool close(const at::Tensor& got, const at::Tensor& expected) {
  return got.sizes() == expected.sizes() && at::allclose(got, expected, 1e-10, 1e-10);
}

/// Value and gradients of `layer` against those of the definition, which autograd differentiates.
template <class Function, class Definition>
void expect_right(const std::vector<at::Tensor>& inputs, const Function& layer, const Definition& definition) {
  std::vector<std::vector<at::Tensor>> results;
  for (int which = 0; which < 4; ++which) {
    at::set_num_threads(which == 0 ? 1 : 1 << (which - 1));
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.clone().requires_grad_(true));
    const at::Tensor y = which == 0 ? definition(leaves) : layer(leaves);
    at::manual_seed(17);
    const at::Tensor direction = at::randn(y.sizes(), y.options().requires_grad(false));
    // An output of nothing depends on no input.
    std::vector<at::Tensor> all(leaves.size());
    if (y.requires_grad()) all = torch::autograd::grad({(y * direction).sum()}, leaves, {}, {}, false, true);
    for (size_t i = 0; i < all.size(); ++i)
      if (!all[i].defined()) all[i] = at::zeros_like(leaves[i]);
    all.push_back(y.detach());
    results.push_back(std::move(all));
  }
  at::set_num_threads(1);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(close(results[1][i], results[0][i])) << "result " << i;
    EXPECT_TRUE(at::equal(results[1][i], results[2][i]) && at::equal(results[1][i], results[3][i])) << "result " << i;
  }
}

at::Tensor sum_of(const std::vector<at::Tensor>& rows, int64_t count, int64_t channels) {
  return count == 0 ? at::zeros({0, channels}, at::kDouble) : at::stack(rows);
}

/// Every layer of one geometry on x, whose outputs lie at `out`.
void expect_layers(const SparseTensor& x, const LayerGeometry& geometry) {
  const CoordinateMapKey key = x.manager()->out_key(x.key(), geometry);
  const at::Tensor coordinates = x.manager()->map(key)->coordinates();
  const AxisValues& scale = geometry.transposed ? key.tensor_stride : x.tensor_stride();
  const std::vector<Pair> pairs =
      pairs_of(x.coordinates(), coordinates, geometry.region.offsets(scale), geometry.transposed);
  const int64_t channels = x.channels(), rows = coordinates.size(0), out_channels = 3;
  const at::Tensor w = at::randn({geometry.region.volume(), channels, out_channels}, at::kDouble);
  const auto add_pairs = [&](int64_t width, const auto& term) {
    std::vector<at::Tensor> y(rows, at::zeros({width}, at::kDouble));
    for (const Pair& pair : pairs) y[pair.out] = y[pair.out] + term(pair);
    return sum_of(y, rows, width);
  };
  expect_right(
      {x.features(), w},
      [&](const std::vector<at::Tensor>& in) {
        return convolution(x.with_features(in[0]), in[1], {}, geometry).features();
      },
      [&](const std::vector<at::Tensor>& in) {
        return add_pairs(out_channels, [&](const Pair& pair) { return in[0][pair.in].matmul(in[1][pair.k]); });
      });
  expect_right(
      {x.features(), at::randn({geometry.region.volume(), channels}, at::kDouble)},
      [&](const std::vector<at::Tensor>& in) {
        return channelwise_convolution(x.with_features(in[0]), in[1], {}, geometry).features();
      },
      [&](const std::vector<at::Tensor>& in) {
        return add_pairs(channels, [&](const Pair& pair) { return in[0][pair.in] * in[1][pair.k]; });
      });
  for (const Pooling pooling : {Pooling::sum, Pooling::average, Pooling::max})
    expect_right(
        {x.features()},
        [&](const std::vector<at::Tensor>& in) { return pool(x.with_features(in[0]), pooling, geometry).features(); },
        [&](const std::vector<at::Tensor>& in) {
          std::vector<std::vector<at::Tensor>> met(rows);
          for (const Pair& pair : pairs) met[pair.out].push_back(in[0][pair.in]);
          std::vector<at::Tensor> y;
          for (const auto& values : met) {
            const at::Tensor all = values.empty() ? at::zeros({1, channels}, at::kDouble) : at::stack(values);
            y.push_back(pooling == Pooling::sum       ? all.sum(0)
                        : pooling == Pooling::average ? all.mean(0)
                                                      : std::get<0>(all.max(0)));
          }
          return sum_of(y, rows, channels);
        });
}

SparseTensor make(const Cloud& cloud, int64_t axes, int64_t channels) {
  at::manual_seed(7);
  return {at::randn({static_cast<int64_t>(cloud.points.size()), channels}, at::kDouble),
          test::to_tensor(cloud.points, axes + 1)};
}

class Adversarial : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Dimensions, Adversarial, testing::Values(1, 2, 3, 4, 5));

TEST_P(Adversarial, LocalLayersEqualTheirDefinition) {
  const int64_t axes = GetParam();
  for (const Cloud& cloud : clouds(axes))
    for (const Layer& layer : layers(axes)) {
      SCOPED_TRACE(cloud.name);
      SCOPED_TRACE(layer.name);
      if (cloud.extreme && layer.geometry.stride[0] == 1000) {
        // What is rounded down past the lowest int32 is an error that says so.
        EXPECT_THROW(pool(make(cloud, axes, 2), Pooling::sum, layer.geometry), Error);
        continue;
      }
      const SparseTensor x = make(cloud, axes, 2);
      expect_layers(x, layer.geometry);
      if (axes > 3) continue;
      // Back again, to the coordinates that the manager has, and to all that are reached.
      const SparseTensor y = pool(x, Pooling::average, layer.geometry);
      LayerGeometry back = layer.geometry;
      back.transposed = true;
      expect_layers(y, back);
      back.generative = true;
      if (!cloud.extreme && axes < 3) expect_layers(y, back);
    }
}

TEST_P(Adversarial, LayersTakeNoChannels) {
  const int64_t axes = GetParam();
  for (const Cloud& cloud : clouds(axes)) {
    SCOPED_TRACE(cloud.name);
    expect_layers(make(cloud, axes, 0), layers(axes)[0].geometry);
    const SparseTensor x = make(cloud, axes, 0);
    EXPECT_EQ(global_pool(x, Pooling::max).channels(), 0);
    EXPECT_EQ(instance_norm(x, {}, {}).size(), x.size());
    EXPECT_EQ(batch_norm(x.features(), {}, {}, {}, {}, true, 0.1, 1e-5).size(1), 0);
  }
}

TEST_P(Adversarial, StridedCoordinatesAreRoundedDown) {
  const int64_t axes = GetParam();
  for (const Cloud& cloud : clouds(axes))
    for (const int64_t stride : {1, 2, 3, 64}) {
      SCOPED_TRACE(cloud.name);
      const SparseTensor x = make(cloud, axes, 1);
      std::set<Point> expected;
      for (Point point : cloud.points) {
        for (int64_t axis = 1; axis <= axes; ++axis)
          point[axis] = static_cast<int64_t>(std::floor(static_cast<double>(point[axis]) / stride)) * stride;
        expected.insert(point);
      }
      const bool leaves = cloud.extreme && stride == 3;  // -2^31 is no multiple
      if (leaves) {
        EXPECT_THROW(x.manager()->stride(x.key(), AxisValues(axes, stride)), Error);
        continue;
      }
      const auto got =
          test::to_points(x.manager()->map(x.manager()->stride(x.key(), AxisValues(axes, stride)))->coordinates());
      EXPECT_EQ(std::set<Point>(got.begin(), got.end()), expected);
    }
}

TEST_P(Adversarial, GlobalLayersEqualTheirDefinition) {
  const int64_t axes = GetParam();
  for (const Cloud& cloud : clouds(axes)) {
    SCOPED_TRACE(cloud.name);
    const SparseTensor x = make(cloud, axes, 2);
    const auto by_entry = [&](const std::vector<at::Tensor>& in, const auto& reduce) {
      std::vector<at::Tensor> y;
      for (const int64_t batch : x.batch_indices()) y.push_back(reduce(in[0].index_select(0, x.rows_at(batch))));
      return sum_of(y, static_cast<int64_t>(y.size()), 2);
    };
    expect_right(
        {x.features()},
        [&](const auto& in) { return global_pool(x.with_features(in[0]), Pooling::average).features(); },
        [&](const auto& in) { return by_entry(in, [](const at::Tensor& all) { return all.mean(0); }); });
    expect_right(
        {x.features()}, [&](const auto& in) { return global_pool(x.with_features(in[0]), Pooling::max).features(); },
        [&](const auto& in) { return by_entry(in, [](const at::Tensor& all) { return std::get<0>(all.max(0)); }); });
    const SparseTensor global = global_pool(x, Pooling::sum);
    const auto batches = x.batch_indices();
    expect_right(
        {x.features(), global.features()},
        [&](const auto& in) {
          return broadcast_multiply(x.with_features(in[0]), global.with_features(in[1])).features();
        },
        [&](const auto& in) {
          at::Tensor y = at::zeros_like(in[0]);
          for (size_t i = 0; i < batches.size(); ++i) {
            const at::Tensor rows = x.rows_at(batches[i]);
            y = y.index_add(0, rows, in[0].index_select(0, rows) * in[1][static_cast<int64_t>(i)]);
          }
          return y;
        });
  }
}

TEST_P(Adversarial, PruningAndUnionEqualTheirDefinition) {
  const int64_t axes = GetParam();
  for (const Cloud& cloud : clouds(axes)) {
    SCOPED_TRACE(cloud.name);
    const SparseTensor x = make(cloud, axes, 2);
    const at::Tensor keep = at::arange(x.size()).remainder(3).ne(1);
    const at::Tensor rows = at::nonzero(keep).squeeze(1);
    expect_right(
        {x.features()}, [&](const auto& in) { return prune(x.with_features(in[0]), keep).features(); },
        [&](const auto& in) { return in[0].index_select(0, rows); });
    const SparseTensor part = prune(x, keep);
    EXPECT_TRUE(at::equal(part.coordinates(), x.coordinates().index_select(0, rows)));
    // In the order of the union's coordinates, which are x's, sorted.
    const SparseTensor sum = x + part;
    EXPECT_EQ(sum.size(), x.size());
    EXPECT_TRUE(close(sum.features_at_coordinates(x.coordinates()), x.features().index_add(0, rows, part.features())));
  }
}

TEST(Extremes, MillionsOfPointsOnALine) {
  constexpr int64_t points = 2'000'000;
  at::Tensor line = at::zeros({points, 3}, at::kInt);
  line.select(1, 2).copy_(at::arange(-points / 2, points / 2));
  const SparseTensor x(at::ones({points, 1}), line);
  const LayerGeometry geometry{KernelRegion::hypercube({1, 3}, {1, 1}), {1, 1}};
  const at::Tensor y = convolution(x, at::ones({3, 1, 1}), {}, geometry).features();
  EXPECT_EQ(y.sum().item<float>(), 3 * points - 2);
  EXPECT_EQ(global_pool(x, Pooling::average).features().item<float>(), 1);
  EXPECT_EQ(pool(x, Pooling::sum, {KernelRegion::hypercube({1, 2}, {1, 1}), {1, 2}}).features().min().item<float>(), 2);
}

TEST(Extremes, HalfPrecisionIsSummedInFloat32) {
  const Cloud cloud{"", test::to_points(test::random_cloud(3000, 3, -7, 7, 2, 3))};
  const SparseTensor wide = make(cloud, 3, 8);
  const LayerGeometry geometry{KernelRegion::hypercube({3, 3, 3}, {1, 1, 1}), {1, 1, 1}};
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const SparseTensor x = wide.to(type), exact = x.to(at::kDouble);
    const double unit = type == at::kHalf ? 1.0 / 512 : 1.0 / 64;  // of a few roundings
    const auto expect_near = [&](const SparseTensor& got, const SparseTensor& expected) {
      EXPECT_EQ(got.features().scalar_type(), type);
      EXPECT_TRUE(at::allclose(got.features().to(at::kDouble), expected.features(), unit, unit));
    };
    for (const Pooling pooling : {Pooling::sum, Pooling::average, Pooling::max}) {
      expect_near(pool(x, pooling, geometry), pool(exact, pooling, geometry));
      expect_near(global_pool(x, pooling), global_pool(exact, pooling));
    }
    const auto norm = [](const SparseTensor& t) {
      return t.with_features(batch_norm(t.features(), {}, {}, {}, {}, true, 0.1, 1e-5));
    };
    expect_near(norm(x), norm(exact));
    expect_near(instance_norm(x, {}, {}), instance_norm(exact, {}, {}));
  }
}

}  // namespace
}  // namespace lockstep::sparse
