// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/stack_unet.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/models/registry.h"
#include "models/network_checks.h"
#include "support/slow_network.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;
using test::SlowCloud;

SparseTensor some_voxels(int64_t axes) {
  torch::manual_seed(4);
  const at::Tensor coordinates = sparse::test::random_cloud(150, axes, -6, 6, 2, 9);
  return {at::randn({150, 3}, at::kDouble), coordinates};
}

TEST(StackUNet, HasMinkowskiEnginesNamesAndShapes) {
  const StackUNet net(StackUNetOptions{.in_channels = 3, .out_channels = 5, .dimension = 2});
  EXPECT_EQ(test::shape_of(*net, "net.0.0.kernel"), "[9, 3, 16]");
  EXPECT_EQ(test::shape_of(*net, "net.0.1.0.kernel"), "[9, 3, 16]");
  EXPECT_EQ(test::shape_of(*net, "net.0.1.1.1.0.kernel"), "[9, 16, 32]");
  EXPECT_EQ(test::shape_of(*net, "net.0.1.1.1.1.kernel"), "[9, 32, 16]");
  EXPECT_EQ(test::shape_of(*net, "net.2.weight"), "[5, 16]");
  EXPECT_EQ(test::shape_of(*net, "net.2.bias"), "[5]");
  EXPECT_EQ(net->parameters().size(), 6);
}

/// The one coarse voxel that a finer one lies in.
SlowCloud unpooled(const SlowCloud& x, const std::vector<test::Point>& points) {
  std::vector<test::Point> coarse;
  for (const test::Point& point : points) coarse.push_back(test::rounded({point}, x.stride)[0]);
  return {points, test::rows_at(x, coarse), x.stride / 2};
}

TEST(StackUNet, ComputesWhatItsDefinitionSays) {
  for (const int64_t axes : {2, 3}) {
    const SparseTensor x = some_voxels(axes);
    StackUNet net(StackUNetOptions{.in_channels = 3, .out_channels = 5, .dimension = axes});
    net->to(at::kDouble);
    const test::SlowNetwork layers(*net);
    const SlowCloud whole = test::slow(x), half = layers.convolve("net.0.1.0", whole, 2);
    const SlowCloud quarter = layers.convolve("net.0.1.1.1.0", half, 2);
    const SlowCloud across = layers.convolve_up("net.0.1.1.1.1", quarter, 1, quarter.points);
    const SlowCloud sum = test::add(half, unpooled(across, half.points));
    const SlowCloud joined = test::add(layers.convolve("net.0.0", whole), unpooled(sum, whole.points));
    const SparseTensor y = net(x);
    EXPECT_EQ(y.key(), x.key());
    test::expect_same(y, test::with_rows(joined, [&](const at::Tensor& rows) { return layers.linear("net.2", rows); }));
  }
}

TEST(StackUNet, GradientsReachAllParametersTheSameForAnyNumberOfThreads) {
  const auto train = [](int threads) {
    at::set_num_threads(threads);
    const SparseTensor x = some_voxels(3);
    StackUNet net(StackUNetOptions{});
    net->to(at::kDouble);
    net(x).features().square().sum().backward();
    at::set_num_threads(1);
    return net;
  };
  const StackUNet one = train(1), two = train(2);
  test::expect_gradients_everywhere(*one);
  for (size_t i = 0; i < one->parameters().size(); ++i)
    EXPECT_TRUE(at::equal(one->parameters()[i].grad(), two->parameters()[i].grad()));
}

TEST(StackUNet, IsAClassifierByNameThatCanBeCopied) {
  const auto net = make("stackunet", {.input = {3}, .dimension = 3, .classes = 6});
  const SparseTensor x = some_voxels(3).to(at::kFloat), none(at::empty({0, 3}), at::empty({0, 4}, at::kInt));
  const at::Tensor logits = net->forward(x);
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({x.size(), 6}));
  EXPECT_EQ(net->forward(none).sizes(), at::IntArrayRef({0, 6}));
  const auto copy = std::dynamic_pointer_cast<Classifier>(net->clone());
  EXPECT_TRUE(at::equal(copy->forward(x), logits));
  const at::NoGradGuard no_grad;
  copy->parameters()[0].zero_();
  EXPECT_FALSE(at::equal(copy->forward(x), logits));
  EXPECT_TRUE(at::equal(net->forward(x), logits));
}

TEST(StackUNet, SaysWhatItExpects) {
  EXPECT_THROW(StackUNet(StackUNetOptions{.in_channels = 0}), Error);
}

}  // namespace
}  // namespace lockstep::models
