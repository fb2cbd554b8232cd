// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/sparse/nn/convolution.h"
#include "lockstep/sparse/nn/norm.h"
#include "lockstep/sparse/nn/pooling.h"
#include "lockstep/sparse/operations.h"
#include "support/clouds.h"
#include "support/gradcheck.h"

namespace lockstep::sparse {
namespace {

using test::random_cloud;
using test::to_points;
using test::to_tensor;

SparseTensor make_doubles(int64_t points, int64_t axes, int64_t channels, uint32_t seed) {
  at::manual_seed(seed);
  const at::Tensor cloud = CoordinateMap::insert(random_cloud(points, axes, -3, 3, 3, seed)).map->coordinates();
  return {at::randn({cloud.size(0), channels}, at::kDouble), cloud};
}

nn::KernelOptions kernel(int64_t axes, int64_t size, int64_t stride) {
  return {.dimension = axes, .kernel_size = {size}, .stride = {stride}};
}

TEST(Pooling, EqualsItsDefinition) {
  for (const int64_t axes : {1, 2, 3}) {
    const SparseTensor x = make_doubles(60, axes, 3, 11);
    const LayerGeometry geometry = kernel(axes, 3, 2).geometry();
    const auto offsets = geometry.region.offsets(x.tensor_stride());
    const auto rows = test::rows_of(x.coordinates());
    for (const Pooling pooling : {Pooling::sum, Pooling::average, Pooling::max}) {
      const SparseTensor y = pool(x, pooling, geometry);
      const auto outputs = to_points(y.coordinates());
      for (size_t i = 0; i < outputs.size(); ++i) {
        std::vector<at::Tensor> met;
        for (size_t k = 0; k < offsets.size(); k += axes) {
          test::Point point = outputs[i];
          for (int64_t axis = 0; axis < axes; ++axis) point[axis + 1] += offsets[k + axis];
          if (const auto found = rows.find(point); found != rows.end()) met.push_back(x.features()[found->second]);
        }
        ASSERT_FALSE(met.empty());
        const at::Tensor all = at::stack(met);
        EXPECT_TRUE(at::allclose(y.features()[i], pooling == Pooling::sum       ? all.sum(0)
                                                  : pooling == Pooling::average ? all.mean(0)
                                                                                : std::get<0>(all.max(0))));
      }
      const lockstep::test::Differentiable f = [&](const std::vector<at::Tensor>& in) {
        return pool(x.with_features(in[0]), pooling, geometry).features();
      };
      lockstep::test::expect_gradients(f, {x.features()});
      if (axes == 1) lockstep::test::expect_second_gradients(f, {x.features()});
    }
  }
}

TEST(Pooling, TakesAllPointsOfABatchEntry) {
  const SparseTensor x = make_doubles(80, 2, 4, 12);
  for (const Pooling pooling : {Pooling::sum, Pooling::average, Pooling::max}) {
    const SparseTensor y = global_pool(x, pooling);
    const auto batches = x.batch_indices();
    ASSERT_EQ(y.size(), static_cast<int64_t>(batches.size()));
    for (size_t i = 0; i < batches.size(); ++i) {
      const at::Tensor all = x.features_at(batches[i]);
      EXPECT_TRUE(at::allclose(y.features()[i], pooling == Pooling::sum       ? all.sum(0)
                                                : pooling == Pooling::average ? all.mean(0)
                                                                              : std::get<0>(all.max(0))));
    }
    lockstep::test::expect_gradients(
        [&](const std::vector<at::Tensor>& in) { return global_pool(x.with_features(in[0]), pooling).features(); },
        {x.features()});
  }
}

TEST(Pooling, UnpoolsToTheFinerCoordinates) {
  const SparseTensor x = make_doubles(60, 3, 2, 13);
  const SparseTensor y = nn::SumPooling(kernel(3, 2, 2))(x);
  const SparseTensor z = nn::PoolingTranspose(kernel(3, 2, 2))(y);
  EXPECT_EQ(z.key(), x.key());
  const auto coarse = test::rows_of(y.coordinates());
  const auto points = to_points(x.coordinates());
  for (size_t i = 0; i < points.size(); ++i) {
    test::Point floor = points[i];
    for (int axis = 1; axis < 4; ++axis)
      floor[axis] = floor[axis] >= 0 ? floor[axis] / 2 * 2 : -((1 - floor[axis]) / 2 * 2);
    EXPECT_TRUE(at::equal(z.features()[i], y.features()[coarse.at(floor)]));
  }
}

TEST(Pooling, UnpoolsTheMeanOfWhatReachesAPoint) {
  const SparseTensor x = make_doubles(60, 2, 2, 20);
  const SparseTensor y = nn::SumPooling(kernel(2, 3, 2))(x);
  const SparseTensor z = nn::PoolingTranspose(kernel(2, 3, 2))(y);
  const auto fine = to_points(x.coordinates()), coarse = to_points(y.coordinates());
  for (size_t i = 0; i < fine.size(); ++i) {
    std::vector<at::Tensor> met;
    for (size_t j = 0; j < coarse.size(); ++j)
      if (fine[i][0] == coarse[j][0] && std::abs(fine[i][1] - coarse[j][1]) <= 1 &&
          std::abs(fine[i][2] - coarse[j][2]) <= 1)
        met.push_back(y.features()[static_cast<int64_t>(j)]);
    EXPECT_TRUE(at::allclose(z.features()[i], met.empty() ? at::zeros({2}, at::kDouble) : at::stack(met).mean(0)));
  }
}

TEST(Pooling, TakesListsOfPairs) {
  const at::Tensor x = at::randn({4, 3}, at::kDouble);
  const at::Tensor in = at::tensor({3, 0, 2, 0}, at::kLong), out = at::tensor({1, 0, 1, 1}, at::kLong);
  const at::Tensor met = at::stack({x[3], x[2], x[0]});
  const auto result = [&](Pooling pooling) { return pool_pairs(x, pooling, in, out, 3); };
  EXPECT_TRUE(at::equal(result(Pooling::max), at::stack({x[0], std::get<0>(met.max(0)), at::zeros_like(x[0])})));
  EXPECT_TRUE(at::allclose(result(Pooling::sum), at::stack({x[0], met.sum(0), at::zeros_like(x[0])})));
  EXPECT_TRUE(at::allclose(result(Pooling::average), at::stack({x[0], met.mean(0), at::zeros_like(x[0])})));
  EXPECT_THROW(pool_pairs(x, Pooling::max, in, out, 1), Error);
}

TEST(Broadcast, GoesRowByRowWithTheBatchEntry) {
  const SparseTensor x = make_doubles(50, 2, 3, 14), g = global_pool(x, Pooling::average);
  const at::Tensor batch = x.coordinates().select(1, 0).to(at::kLong);
  const auto batches = x.batch_indices();
  std::map<int64_t, int64_t> row_of;
  for (size_t i = 0; i < batches.size(); ++i) row_of[batches[i]] = static_cast<int64_t>(i);
  for (int64_t i = 0; i < x.size(); ++i) {
    const at::Tensor mean = g.features()[row_of[batch[i].item<int64_t>()]];
    EXPECT_TRUE(at::equal(broadcast_add(x, g).features()[i], x.features()[i] + mean));
    EXPECT_TRUE(at::equal(broadcast_multiply(x, g).features()[i], x.features()[i] * mean));
    EXPECT_TRUE(at::equal(broadcast_cat(x, g).features()[i], at::cat({x.features()[i], mean})));
  }
  lockstep::test::expect_gradients(
      [&](const std::vector<at::Tensor>& in) {
        return broadcast_multiply(x.with_features(in[0]), g.with_features(in[1])).features();
      },
      {x.features(), g.features()});
  EXPECT_THROW(broadcast_add(x, global_pool(make_doubles(50, 2, 3, 14), Pooling::sum)), Error);
}

TEST(Broadcast, FindsABatchEntrysRowWhereverItIs) {
  const SparseTensor x(at::zeros({3, 1}), to_tensor({{0, 1, 1}, {1, 2, 2}, {1, 3, 3}}, 3));
  for (const int64_t stride : {0, 1}) {
    const SparseTensor g(at::tensor({100.0F, 200.0F}).view({2, 1}), to_tensor({{1, 0, 0}, {0, 0, 0}}, 3),
                         {stride, stride}, Quantization::first, x.manager());
    EXPECT_TRUE(at::equal(broadcast(x, g).features(), at::tensor({200.0F, 100.0F, 100.0F}).view({3, 1})));
  }
}

TEST(Norm, BatchNormEqualsTorchsAndHasGradients) {
  const SparseTensor x = make_doubles(700, 3, 5, 15);
  at::manual_seed(1);
  const std::vector<at::Tensor> inputs = {x.features() * 3 + 100, at::randn({5}, at::kDouble),
                                          at::randn({5}, at::kDouble)};
  for (const bool training : {true, false}) {
    const at::Tensor mean = at::randn({5}, at::kDouble), var = at::rand({5}, at::kDouble) + 1;
    const at::Tensor mean2 = mean.clone(), var2 = var.clone();
    const at::Tensor y = batch_norm(inputs[0], inputs[1], inputs[2], mean, var, training, 0.1, 1e-5);
    EXPECT_TRUE(
        at::allclose(y, at::batch_norm(inputs[0], inputs[1], inputs[2], mean2, var2, training, 0.1, 1e-5, false)));
    EXPECT_TRUE(at::allclose(mean, mean2) && at::allclose(var, var2));
    const at::Tensor few = inputs[0].slice(0, 0, 20);
    lockstep::test::expect_gradients(
        [&](const std::vector<at::Tensor>& in) {
          return batch_norm(in[0], in[1], in[2], mean.clone(), var.clone(), training, 0.1, 1e-5);
        },
        {few, inputs[1], inputs[2]}, 1e-5);
  }
  at::Tensor leaf = inputs[0].clone().requires_grad_(true);
  const at::Tensor y = batch_norm(leaf, {}, {}, {}, {}, true, 0.1, 1e-5);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {leaf}, {}, true, /*create_graph=*/true), Error);
}

TEST(Norm, StatisticsMayMoveBetweenAnEvaluationAndItsBackwardPass) {
  const SparseTensor x = make_doubles(60, 2, 3, 15);
  const at::Tensor mean = at::randn({3}, at::kDouble), var = at::rand({3}, at::kDouble) + 1;
  at::Tensor weight = at::ones({3}, at::kDouble).requires_grad_(true);
  const auto evaluate = [&] { return batch_norm(x.features(), weight, {}, mean, var, false, 0.1, 1e-5).sum(); };
  const at::Tensor first = evaluate(), second = evaluate();
  const auto expected = torch::autograd::grad({first}, {weight});
  batch_norm(x.features(), weight, {}, mean, var, true, 0.1, 1e-5);
  EXPECT_TRUE(at::equal(torch::autograd::grad({second}, {weight})[0], expected[0]));
}

TEST(Norm, InstanceNormTakesEachBatchEntryOnItsOwn) {
  const SparseTensor x = make_doubles(60, 2, 3, 16);
  const std::vector<at::Tensor> inputs = {x.features(), at::randn({1, 3}, at::kDouble), at::randn({1, 3}, at::kDouble)};
  const SparseTensor y = instance_norm(x, inputs[1], inputs[2]);
  for (const int64_t batch : x.batch_indices()) {
    const at::Tensor all = x.features_at(batch), mean = all.mean(0);
    const at::Tensor normal = (all - mean) * at::rsqrt((all - mean).pow(2).mean(0) + 1e-5);
    EXPECT_TRUE(at::allclose(y.features_at(batch), normal * inputs[1] + inputs[2]));
  }
  lockstep::test::expect_gradients(
      [&](const std::vector<at::Tensor>& in) { return instance_norm(x.with_features(in[0]), in[1], in[2]).features(); },
      inputs, 1e-5);
}

TEST(Norm, InstanceNormTakesLargeValuesInHalfPrecision) {
  const SparseTensor x = make_doubles(60, 2, 3, 16), large = x * 3000;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor got = instance_norm(large.to(type), {}, {}).features();
    EXPECT_EQ(got.scalar_type(), type);
    EXPECT_TRUE(at::allclose(got.to(at::kDouble), instance_norm(large, {}, {}).features(), 2e-2, 2e-2));
  }
}

TEST(Layers, HaveMinkowskiEnginesNamesAndShapes) {
  nn::Convolution conv(nn::ConvolutionOptions{4, 6, {.kernel_size = {3, 2, 1}}, true});
  EXPECT_EQ(conv->kernel.sizes(), (at::IntArrayRef{6, 4, 6}));
  EXPECT_EQ(conv->bias.sizes(), (at::IntArrayRef{1, 6}));
  nn::Convolution point(nn::ConvolutionOptions{4, 6, {.kernel_size = {1}}});
  EXPECT_EQ(point->kernel.sizes(), (at::IntArrayRef{4, 6}));
  EXPECT_EQ(nn::ChannelwiseConvolution(nn::ConvolutionOptions{4, 0, {}})->kernel.sizes(), (at::IntArrayRef{27, 4}));
  std::vector<std::string> names;
  for (const auto& item : nn::BatchNorm(4)->named_parameters()) names.push_back(item.key());
  for (const auto& item : nn::Linear(4, 5)->named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"bn.weight", "bn.bias", "linear.weight", "linear.bias"}));
  EXPECT_EQ(std::dynamic_pointer_cast<nn::ConvolutionImpl>(conv->clone())->kernel.sizes(), conv->kernel.sizes());
}

TEST(Layers, RunStridedTransposedGenerativeAndOnGivenCoordinates) {
  const SparseTensor x = make_doubles(90, 3, 4, 17);
  const auto options = [](int64_t size, int64_t stride) {
    return nn::ConvolutionOptions{4, 4, {.kernel_size = {size}, .stride = {stride}}};
  };
  const auto wide = [](auto layer) {
    layer->to(at::kDouble);
    return layer;
  };
  const SparseTensor down = wide(nn::Convolution(options(3, 2)))(x);
  EXPECT_EQ(down.tensor_stride(), (AxisValues{2, 2, 2}));
  EXPECT_EQ(wide(nn::ConvolutionTranspose(options(3, 2)))(down).key(), x.key());
  const SparseTensor grown = wide(nn::GenerativeConvolutionTranspose(options(2, 2)))(down);
  EXPECT_EQ(grown.size(), 8 * down.size());
  nn::ConvolutionOptions expanding = options(3, 1);
  expanding.kernel.expand_coordinates = true;
  const SparseTensor expanded = wide(nn::Convolution(expanding))(x);
  EXPECT_EQ(expanded.size(),
            x.manager()
                ->map(x.key())
                ->expanded(KernelRegion::hypercube({3, 3, 3}, {1, 1, 1}).offsets({1, 1, 1}), AxisValues{1, 1, 1})
                ->size());
  nn::Convolution point = wide(nn::Convolution(options(1, 1)));
  const auto target = x.manager()->insert(to_tensor({{0, 50, 50, 50}, {0, 0, 0, 0}}, 4), {1, 1, 1}).key;
  const SparseTensor there = point(x, target);
  EXPECT_EQ(there.size(), 2);
  EXPECT_EQ(there.features()[0].abs().sum().item<double>(), 0);
}

TEST(Layers, GiveTheSameBitsForAnyNumberOfThreads) {
  at::manual_seed(18);
  const at::Tensor cloud = CoordinateMap::insert(random_cloud(9000, 3, 0, 25, 2, 18)).map->coordinates();
  const at::Tensor features = at::randn({cloud.size(0), 17});
  std::vector<at::Tensor> first;
  for (const int threads : {1, 2, 4}) {
    at::set_num_threads(threads);
    at::Tensor leaf = features.clone().requires_grad_(true), w = at::ones({17}).requires_grad_(true);
    const SparseTensor x(leaf, cloud);
    const SparseTensor y = x.with_features(batch_norm(leaf, w, {}, {}, {}, true, 0.1, 1e-5));
    const SparseTensor z = instance_norm(pool(y, Pooling::max, kernel(3, 3, 2).geometry()), w, w);
    std::vector<at::Tensor> all = {broadcast_multiply(y, global_pool(y, Pooling::average)).features(),
                                   global_pool(z, Pooling::sum).features(),
                                   pool(y, Pooling::average, kernel(3, 2, 2).geometry()).features()};
    torch::autograd::backward(all,
                              {at::full_like(all[0], 0.1), at::full_like(all[1], 0.2), at::full_like(all[2], 0.3)});
    all.push_back(leaf.grad());
    all.push_back(w.grad());
    if (first.empty()) first = all;
    for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(all[i], first[i])) << i << " with " << threads;
  }
  at::set_num_threads(1);
}

TEST(Layers, Float32GradientsAreThoseOfFloat64UpToRounding) {
  at::manual_seed(19);
  const at::Tensor cloud = CoordinateMap::insert(random_cloud(3000, 3, 0, 15, 2, 19)).map->coordinates();
  const std::vector<at::Tensor> inputs = {at::randn({cloud.size(0), 24}), at::randn({27, 24, 40}), at::rand({40})};
  const at::Tensor direction = at::randn({cloud.size(0), 40});
  std::vector<std::vector<at::Tensor>> gradients;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.to(type, false, true).requires_grad_(true));
    const SparseTensor y = convolution(SparseTensor(leaves[0], cloud), leaves[1], {}, kernel(3, 3, 1).geometry());
    batch_norm(y.features(), leaves[2], {}, {}, {}, true, 0.1, 1e-5).backward(direction.to(type));
    gradients.push_back({leaves[0].grad(), leaves[1].grad(), leaves[2].grad()});
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_LT((gradients[0][i] - gradients[1][i]).abs().max().item<double>(),
              3e-6 * gradients[1][i].abs().max().item<double>())
        << "input " << i;
}

TEST(Layers, TakeNothing) {
  const SparseTensor x(at::zeros({0, 4}), at::empty({0, 4}, at::kInt));
  nn::Convolution conv(nn::ConvolutionOptions{4, 6, {.stride = {2}}, true});
  nn::BatchNorm norm(6);
  const SparseTensor y = norm(conv(x));
  EXPECT_EQ(y.features().sizes(), (at::IntArrayRef{0, 6}));
  EXPECT_EQ(global_pool(y, Pooling::average).size(), 0);
  EXPECT_EQ(pool(x, Pooling::max, kernel(3, 2, 2).geometry()).size(), 0);
  y.features().sum().backward();
  EXPECT_EQ(conv->kernel.grad().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace lockstep::sparse
