// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/mink_fcnn.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/models/registry.h"
#include "models/network_checks.h"
#include "support/slow_network.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;
using sparse::TensorField;
using test::shape_of;
using test::SlowCloud;

constexpr int64_t kClouds = 3, kPoints = 50;

MinkFcnnOptions small() {
  return {.in_channels = 2, .out_channels = 5, .dimension = 2, .embedding_channels = 16, .channels = {4, 5, 6, 7, 8}};
}

/// Points of clouds that are some hundred voxels wide, so that several are left at each resolution; some share a voxel.
TensorField some_points() {
  torch::manual_seed(3);
  std::vector<at::Tensor> clouds;
  for (int64_t b = 0; b < kClouds; ++b)
    clouds.push_back(at::cat({at::rand({kPoints / 2, 2}) * 400 - 100, at::rand({kPoints - kPoints / 2, 2}) * 4}));
  return {at::randn({kClouds * kPoints, 2}, at::kDouble), sparse::batched_coordinates(clouds)};
}

TEST(MinkFcnn, HasMinkowskiEnginesNamesAndShapes) {
  const MinkFcnn net(MinkFcnnOptions{});
  EXPECT_EQ(shape_of(*net, "mlp1.0.linear.weight"), "[32, 3]");
  EXPECT_EQ(shape_of(*net, "mlp1.0.linear.bias"), "none");
  EXPECT_EQ(shape_of(*net, "mlp1.1.bn.weight"), "[32]");
  EXPECT_EQ(shape_of(*net, "conv1.0.kernel"), "[27, 32, 48]");
  EXPECT_EQ(shape_of(*net, "conv4.0.kernel"), "[27, 96, 128]");
  EXPECT_EQ(shape_of(*net, "conv5.0.0.kernel"), "[27, 336, 256]");
  EXPECT_EQ(shape_of(*net, "conv5.2.0.kernel"), "[27, 512, 1024]");
  EXPECT_EQ(shape_of(*net, "conv5.2.1.bn.bias"), "[1024]");
  EXPECT_EQ(shape_of(*net, "final.0.0.linear.weight"), "[512, 2048]");
  EXPECT_EQ(shape_of(*net, "final.2.1.bn.weight"), "[256]");
  EXPECT_EQ(shape_of(*net, "final.3.linear.weight"), "[40, 256]");
  EXPECT_EQ(shape_of(*net, "final.3.linear.bias"), "[40]");
  EXPECT_EQ(net->parameters().size(), 32);
}

/// Of each point the row of the voxel it falls into.
std::vector<test::Point> voxels_of(const TensorField& x) {
  return sparse::test::to_points(x.coordinates().floor().to(at::kInt));
}

std::vector<test::Point> floored(std::vector<test::Point> points, int64_t stride) {
  for (test::Point& point : points) point = test::rounded({point}, stride)[0];
  return points;
}

/// Means of rows that have one point.
SlowCloud means(const std::vector<test::Point>& points, const at::Tensor& rows) {
  SlowCloud out{test::rounded(points, 1), {}};
  std::vector<at::Tensor> mean;
  for (const test::Point& voxel : out.points) {
    std::vector<at::Tensor> mine;
    for (size_t i = 0; i < points.size(); ++i)
      if (points[i] == voxel) mine.push_back(rows[static_cast<int64_t>(i)]);
    mean.push_back(at::stack(mine).mean(0));
  }
  out.rows = at::stack(mean);
  return out;
}

TEST(MinkFcnn, ComputesWhatItsDefinitionSays) {
  const TensorField x = some_points();
  MinkFcnn net(small());
  test::scramble_statistics(*net);
  net->to(at::kDouble);
  net->eval();
  const test::SlowNetwork layers(*net);
  const auto perceptron = [&](const std::string& name, const at::Tensor& rows) {
    return at::leaky_relu(layers.norm(name + ".1", layers.linear(name + ".0.linear", rows)));
  };
  const auto convolve = [&](const std::string& name, const SlowCloud& y, int64_t stride) {
    return test::leaky_relu(layers.norm(name + ".1", layers.convolve(name + ".0", y, stride)));
  };
  const auto points = voxels_of(x);
  SlowCloud y = means(points, perceptron("mlp1", x.features()));
  std::vector<at::Tensor> seen;
  for (const int level : {1, 2, 3, 4}) {
    y = test::max_pool(convolve("conv" + std::to_string(level), y, level == 1 ? 1 : 2), 3, 2);
    seen.push_back(test::rows_at(y, floored(points, y.stride)));
  }
  y = means(points, at::cat(seen, 1));
  for (const char* name : {"conv5.0", "conv5.1", "conv5.2"}) y = convolve(name, y, 2);
  std::vector<at::Tensor> pooled;
  for (int64_t cloud = 0; cloud < kClouds; ++cloud) {
    std::vector<int64_t> mine;
    for (size_t i = 0; i < y.points.size(); ++i)
      if (y.points[i][0] == cloud) mine.push_back(static_cast<int64_t>(i));
    const at::Tensor rows = y.rows.index_select(0, at::tensor(mine));
    pooled.push_back(at::cat({std::get<0>(rows.max(0)), rows.mean(0)}));
  }
  const at::Tensor expected =
      layers.linear("final.3.linear", perceptron("final.2", perceptron("final.0", at::stack(pooled))));

  const at::NoGradGuard no_grad;
  const at::Tensor logits = net->forward(x);
  ASSERT_EQ(logits.sizes(), at::IntArrayRef({kClouds, 5}));
  EXPECT_TRUE(at::allclose(logits, expected, 1e-10, 1e-12)) << (logits - expected).abs().max();
}

TEST(MinkFcnn, TakesVoxelsAsPoints) {
  const SparseTensor voxels = some_points().sparse();
  MinkFcnn net(small());
  net->to(at::kDouble);
  net->eval();
  const at::NoGradGuard no_grad;
  const TensorField as_points(voxels.features(), voxels.coordinates().to(at::kDouble) + at::tensor({0., .5, .25}));
  EXPECT_TRUE(at::allclose(net->forward(voxels), net->forward(as_points), 1e-10, 1e-12));
}

TEST(MinkFcnn, LearnsToTellCloudsApartTheSameForAnyNumberOfThreads) {
  const auto train = [](int threads) {
    at::set_num_threads(threads);
    const TensorField x = some_points();
    MinkFcnn net(small());
    net->to(at::kDouble);
    std::vector<double> losses;
    for (int step = 0; step < 12; ++step) {
      net->zero_grad();
      const at::Tensor loss = at::cross_entropy_loss(net->forward(x), at::arange(kClouds));
      loss.backward();
      if (step == 0) test::expect_gradients_everywhere(*net);
      losses.push_back(loss.item<double>());
      const at::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.sub_(0.05 * parameter.grad());
    }
    at::set_num_threads(1);
    return losses;
  };
  const auto losses = train(1);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  EXPECT_EQ(train(2), losses);
}

TEST(MinkFcnn, IsAClassifierByNameAndGivesNoRowsForNoPoints) {
  const auto net = make("minkfcnn", {.input = {2}, .dimension = 2, .classes = 6});
  net->eval();
  const at::NoGradGuard no_grad;
  const TensorField x = some_points();
  EXPECT_EQ(net->forward(x.with_features(x.features().to(at::kFloat))).sizes(), at::IntArrayRef({kClouds, 6}));
  EXPECT_EQ(net->forward(TensorField(at::empty({0, 2}), at::empty({0, 3}))).sizes(), at::IntArrayRef({0, 6}));
}

TEST(MinkFcnn, ACopyComputesTheSame) {
  MinkFcnn net(small());
  const auto copy = std::dynamic_pointer_cast<MinkFcnnImpl>(net->clone());
  net->eval();
  copy->eval();
  const TensorField x = some_points(), single = x.with_features(x.features().to(at::kFloat));
  EXPECT_TRUE(at::equal(copy->forward(single), net->forward(single)));
}

TEST(MinkFcnn, SaysWhatItExpects) {
  MinkFcnnOptions options;
  options.embedding_channels = 3;
  EXPECT_THAT([&] { MinkFcnn net(options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("the embedding has 3 channels, expected at least 4")));
}

}  // namespace
}  // namespace lockstep::models
