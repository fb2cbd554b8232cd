// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/mink_resnet.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/models/registry.h"
#include "models/network_checks.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;
using sparse::TensorField;
using test::shape_of;

/// Coordinates of `entries` clouds with 40 points each, far enough apart that several are left at the last resolution.
at::Tensor coordinates_of(int64_t entries, int64_t dimension) {
  std::vector<at::Tensor> clouds;
  for (int64_t b = 0; b < entries; ++b)
    clouds.push_back(at::cat({at::full({40, 1}, b, at::kLong), at::randint(0, 1000, {40, dimension})}, 1));
  return at::cat(clouds).to(at::kInt);
}

TEST(MinkResNet, HasMinkowskiEnginesNamesAndShapes) {
  const MinkResNet net(MinkResNetOptions::of_depth(14, 3, 40));
  EXPECT_EQ(shape_of(*net, "conv1.0.kernel"), "[27, 3, 64]");
  EXPECT_EQ(shape_of(*net, "conv1.1.weight"), "[1, 64]");
  EXPECT_EQ(shape_of(*net, "layer1.0.conv1.kernel"), "[27, 64, 64]");
  EXPECT_EQ(shape_of(*net, "layer1.0.downsample.0.kernel"), "[64, 64]");
  EXPECT_EQ(shape_of(*net, "layer4.0.norm2.bn.weight"), "[512]");
  EXPECT_EQ(shape_of(*net, "conv5.1.kernel"), "[27, 512, 512]");
  EXPECT_EQ(shape_of(*net, "conv5.2.bias"), "[1, 512]");
  EXPECT_EQ(shape_of(*net, "final.linear.weight"), "[40, 512]");
  EXPECT_EQ(shape_of(*net, "field_network.0.kernel"), "none");
}

TEST(MinkResNet, FieldVariantsHaveAPerceptronOfPoints) {
  auto options = MinkResNetOptions::of_depth(14, 3, 40, 1);
  options.field = true;
  const MinkResNet net(options);
  EXPECT_EQ(shape_of(*net, "field_network.0.kernel"), "[3, 32]");
  EXPECT_EQ(shape_of(*net, "field_network.0.coef"), "[1, 32]");
  EXPECT_EQ(shape_of(*net, "field_network.3.linear.weight"), "[32, 32]");
  EXPECT_EQ(shape_of(*net, "field_network2.0.kernel"), "[35, 64]");
  EXPECT_EQ(shape_of(*net, "field_network2.4.bn.weight"), "[64]");
  EXPECT_EQ(shape_of(*net, "conv1.0.kernel"), "[3, 64, 64]");
}

TEST(MinkResNet, DepthsDifferInBlocks) {
  EXPECT_EQ(MinkResNetOptions::of_depth(101, 2, 7).layers[2], 23);
  torch::manual_seed(1);
  const SparseTensor x(at::randn({120, 2}), coordinates_of(3, 1));
  const at::NoGradGuard no_grad;
  for (const auto& [depth, width] : {std::pair(18, 512), {50, 2048}}) {
    MinkResNet net(MinkResNetOptions::of_depth(depth, 2, 7, 1));
    EXPECT_EQ(net->forward(x).sizes(), at::IntArrayRef({3, 7})) << depth;
    EXPECT_EQ(net->named_parameters()["final.linear.weight"].size(1), width);
  }
}

TEST(MinkResNet, ACloudsLogitsDoNotDependOnItsNeighboursInTheBatch) {
  torch::manual_seed(2);
  const at::Tensor coordinates = coordinates_of(2, 2), features = at::randn({80, 3}).to(at::kDouble);
  MinkResNet net(MinkResNetOptions::of_depth(14, 3, 5, 2));
  net->to(at::kDouble);
  net->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor both = net->forward(SparseTensor(features, coordinates));
  const at::Tensor first = net->forward(SparseTensor(features.narrow(0, 0, 40), coordinates.narrow(0, 0, 40)));
  EXPECT_TRUE(at::allclose(both.narrow(0, 0, 1), first, 1e-10, 1e-10));
}

/// Two points of one voxel and one alone: each sees itself and the mean of its voxel.
TEST(MinkResNet, AFieldNetworkTakesMeansOfVoxels) {
  torch::manual_seed(4);
  const at::Tensor places = at::tensor({0.F, 0.1F, 0.2F, 0.F, 0.7F, 0.9F, 0.F, 3.5F, 2.F}).view({3, 3});
  const at::Tensor features = at::randn({3, 2});
  FieldNetwork network(2, 4);
  network->eval();  // norms leave values nearly as they are
  const auto weights = network->named_parameters();
  const at::Tensor waves =
      ((features.matmul(weights["0.kernel"]) + weights["0.bias"]).sin() * weights["0.coef"] / std::sqrt(1 + 1e-5))
          .relu();
  const at::Tensor hidden =
      ((waves.matmul(weights["3.linear.weight"].t()) + weights["3.linear.bias"]) / std::sqrt(1 + 1e-5)).relu();
  const SparseTensor voxels = network(TensorField(features, places));
  ASSERT_EQ(voxels.size(), 2);
  EXPECT_TRUE(at::allclose(voxels.features()[0], (hidden[0] + hidden[1]) / 2, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(voxels.features()[1], hidden[2], 1e-5, 1e-6));
}

TEST(MinkResNet, TakesFieldsAndLearnsFromThem) {
  torch::manual_seed(5);
  auto options = MinkResNetOptions::of_depth(14, 3, 4, 2);
  options.field = true;
  MinkResNet net(options);
  const at::Tensor places = coordinates_of(2, 2).to(at::kFloat) + 0.25;
  const at::Tensor rounded = at::cat({places.narrow(1, 0, 1).floor(), places.narrow(1, 1, 2)}, 1);
  const at::Tensor logits = net->forward(TensorField(at::randn({80, 3}), rounded));
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 4}));
  logits.square().sum().backward();
  test::expect_gradients_everywhere(*net);
  const auto copy = std::dynamic_pointer_cast<MinkResNetImpl>(net->clone());
  net->eval();
  copy->eval();
  const TensorField x(at::randn({80, 3}), rounded);
  EXPECT_TRUE(at::equal(copy->forward(x), net->forward(x)));
}

TEST(MinkResNet, SaysWhatItExpects) {
  EXPECT_THROW(MinkResNetOptions::of_depth(20, 3, 4), Error);
}

/// The registry's way to them; a field part takes voxels as points.
TEST(MinkResNet, IsAClassifierByName) {
  torch::manual_seed(6);
  const SparseTensor x(at::randn({80, 3}), coordinates_of(2, 2));
  for (const char* field : {"0", "1"}) {
    const auto net = make("minkresnet14", {.input = {3}, .dimension = 2, .classes = 4, .settings = {{"field", field}}});
    net->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor logits = net->forward(x);
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 4}));
    EXPECT_TRUE(at::equal(net->forward(sparse::points_of(x)), logits));
  }
}

}  // namespace
}  // namespace lockstep::models
