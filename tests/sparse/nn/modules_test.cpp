// SPDX-License-Identifier: Apache-2.0
// Layers as modules: their names, copies and training modes.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/threshold.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include "lockstep/base/error.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/sparse/nn/blocks.h"
#include "lockstep/sparse/nn/join.h"
#include "lockstep/sparse/nn/pointwise.h"
#include "lockstep/sparse/nn/pooling.h"
#include "support/clouds.h"
#include "support/gradcheck.h"

namespace lockstep::sparse {
namespace {

SparseTensor make(int64_t points, int64_t axes, int64_t channels, uint32_t seed) {
  at::manual_seed(seed);
  const at::Tensor cloud = CoordinateMap::insert(test::random_cloud(points, axes, -3, 3, 3, seed)).map->coordinates();
  return {at::randn({cloud.size(0), channels}), cloud};
}

std::vector<std::string> names_of(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  return names;
}

TEST(Pointwise, IsTorchsLayerOfFeatures) {
  const SparseTensor x = make(50, 3, 4, 1);
  EXPECT_TRUE(at::equal(nn::ReLU()(x).features(), at::relu(x.features())));
  EXPECT_TRUE(at::equal(nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2))(x).features(),
                        at::leaky_relu(x.features(), 0.2)));
  EXPECT_TRUE(at::equal(nn::Softmax(1)(x).features(), at::softmax(x.features(), 1)));
  EXPECT_TRUE(at::equal(nn::Threshold(0.1, 5)(x).features(), at::threshold(x.features(), 0.1, 5)));
  EXPECT_TRUE(at::equal(nn::Hardswish()(x).features(), at::hardswish(x.features())));
  EXPECT_THAT(names_of(*nn::PReLU()), testing::ElementsAre("module.weight"));
}

TEST(Pointwise, IsCopiedWithItsParametersAndMode) {
  nn::PReLU layer(torch::nn::PReLUOptions().num_parameters(4).init(0.5));
  layer->eval();
  const auto copy = std::dynamic_pointer_cast<nn::PReLU::Impl>(layer->clone());
  EXPECT_FALSE(copy->is_training() || copy->module->is_training());
  EXPECT_TRUE(at::equal(copy->module->weight, layer->module->weight));
  {
    const at::NoGradGuard no_grad;
    copy->module->weight.fill_(2);
  }
  EXPECT_EQ(layer->module->weight[0].item<float>(), 0.5);
  const SparseTensor x = make(20, 3, 4, 2);
  EXPECT_TRUE(at::equal(copy->forward(x).features(), at::prelu(x.features(), at::full({4}, 2.0))));
}

TEST(Pointwise, TakesFields) {
  const TensorField field(at::randn({30, 4}), at::rand({30, 4}) * 3);
  nn::Linear linear(4, 2);
  nn::ReLU relu;
  nn::BatchNorm norm(2);
  const TensorField y = nn::on_field(relu, nn::on_field(norm, nn::on_field(linear, field)));
  EXPECT_EQ(y.features().sizes(), (at::IntArrayRef{30, 2}));
  EXPECT_TRUE(at::equal(y.coordinates(), field.coordinates()));
}

TEST(Dropout, DropsAsOftenAsAskedAndKeepsTheMean) {
  const at::Tensor x = at::ones({4000, 16}, at::kDouble).requires_grad_(true);
  const RandomScope scope(RandomKey{7});
  const at::Tensor y = keyed_dropout(x, 0.25, true);
  EXPECT_NEAR((y == 0).to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_TRUE(at::allclose(y.masked_select(y != 0), at::scalar_tensor(1 / 0.75, at::kDouble)));
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
  EXPECT_TRUE(keyed_dropout(x, 0.25, false).is_same(x));
  EXPECT_EQ(keyed_dropout(x, 1, true).abs().sum().item<double>(), 0);
  EXPECT_THROW(keyed_dropout(x, 1.5, true), Error);
}

TEST(Dropout, FollowsTheKeyAndNotTheThreads) {
  const SparseTensor x = make(3000, 3, 32, 3);
  nn::Dropout layer(0.5);
  std::vector<at::Tensor> masks;
  for (const int threads : {1, 2, 4}) {
    at::set_num_threads(threads);
    const RandomScope scope(RandomKey{11}.fold(3));
    masks.push_back(at::stack({layer(x).features(), layer(x).features()}));
  }
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(masks[0], masks[1]) && at::equal(masks[0], masks[2]));
  EXPECT_FALSE(at::equal(masks[0][0], masks[0][1]));
  layer->eval();
  EXPECT_TRUE(at::equal(layer(x).features(), x.features()));
}

TEST(Join, ModulesAreTheirFunctions) {
  const SparseTensor x = make(40, 2, 3, 4), global = global_pool(x, Pooling::average);
  EXPECT_TRUE(at::equal(nn::BroadcastConcatenation()(x, global).features(), broadcast_cat(x, global).features()));
  EXPECT_TRUE(at::equal(nn::BroadcastAddition()(x, global).features(), broadcast_add(x, global).features()));
  const at::Tensor keep = x.features().select(1, 0) > 0;
  const SparseTensor pruned = nn::Pruning()(x, keep);
  EXPECT_EQ(pruned.size(), keep.sum().item<int64_t>());
  EXPECT_TRUE(at::equal(nn::Union()(std::vector{x, pruned}).features(), unite({x, pruned}).features()));
  EXPECT_TRUE(nn::ToFeature()(x).is_same(x.features()));
  EXPECT_TRUE(at::equal(nn::ToDenseTensor()(x), x.dense().first));
  EXPECT_EQ(nn::ToSparseTensor()(x.dense().first).size(), x.size());
  const at::Tensor points = x.coordinates().to(at::kFloat) + 0.25;
  EXPECT_TRUE(at::equal(nn::Interpolation()(x, points.floor()), x.interpolate(points.floor())));
}

TEST(Join, StacksWhatLayersMakeOfOneInput) {
  const SparseTensor x = make(40, 3, 4, 5);
  const nn::ConvolutionOptions options{4, 6, {}};
  nn::Convolution a(options), b(options);
  const at::Tensor both = at::stack({a(x).features(), b(x).features()});
  EXPECT_TRUE(at::equal(nn::StackCat(a, b)(x).features(), at::cat({both[0], both[1]}, 1)));
  EXPECT_TRUE(at::equal(nn::StackSum(a, b)(x).features(), both.sum(0)));
  EXPECT_TRUE(at::equal(nn::StackMean(a, b)(x).features(), both.mean(0)));
  EXPECT_TRUE(at::allclose(nn::StackVar(a, b)(x).features(), both.var(0, false)));
  nn::StackSum stack(a, b);
  EXPECT_THAT(names_of(*stack), testing::ElementsAre("0.kernel", "1.kernel"));
  const auto copy = std::dynamic_pointer_cast<nn::StackSumImpl>(stack->clone());
  EXPECT_TRUE(at::equal(copy->forward(x).features(), stack(x).features()));
  copy->parameters()[0].detach().zero_();
  EXPECT_FALSE(at::equal(copy->forward(x).features(), stack(x).features()));
}

TEST(Blocks, HaveMinkowskiEnginesNames) {
  EXPECT_THAT(names_of(*nn::BasicBlock(nn::BlockOptions{.in_channels = 4, .planes = 4})),
              testing::ElementsAre("conv1.kernel", "norm1.bn.weight", "norm1.bn.bias", "conv2.kernel",
                                   "norm2.bn.weight", "norm2.bn.bias"));
  EXPECT_THAT(names_of(*nn::Bottleneck(nn::BlockOptions{.in_channels = 4, .planes = 2, .stride = 2, .reduction = 2})),
              testing::IsSupersetOf({"conv3.kernel", "se.fc.0.linear.weight", "se.fc.2.linear.bias",
                                     "downsample.0.kernel", "downsample.1.bn.bias"}));
}

TEST(Blocks, ComputeTheirDefinitionAndSoDoTheirCopies) {
  const SparseTensor x = make(60, 3, 4, 6);
  nn::Bottleneck block(nn::BlockOptions{.in_channels = 4, .planes = 4, .stride = 2, .reduction = 4});
  const auto copy = std::dynamic_pointer_cast<nn::ResidualBlockImpl>(block->clone());
  EXPECT_EQ(names_of(*copy), names_of(*block));
  const SparseTensor y = block(x), z = copy->forward(x);
  EXPECT_EQ(y.channels(), 16);
  EXPECT_EQ(y.tensor_stride(), (AxisValues{2, 2, 2}));
  EXPECT_TRUE(at::equal(y.features(), z.features()));
  // The copy's parameters are its own.
  for (auto& parameter : copy->parameters()) parameter.detach().zero_();
  EXPECT_EQ(copy->forward(x).features().abs().sum().item<float>(), 0);
  EXPECT_TRUE(at::equal(y.features(), block(x).features()));

  nn::SELayer se(4, 2);
  const auto w = se->named_parameters();
  const SparseTensor weighed = se(x);
  for (const int64_t batch : x.batch_indices()) {
    const at::Tensor mean = x.features_at(batch).mean(0);
    const at::Tensor hidden = at::relu(at::linear(mean, w["fc.0.linear.weight"], w["fc.0.linear.bias"]));
    const at::Tensor scale = at::sigmoid(at::linear(hidden, w["fc.2.linear.weight"], w["fc.2.linear.bias"]));
    EXPECT_TRUE(at::allclose(weighed.features_at(batch), x.features_at(batch) * scale, 1e-5, 1e-6));
  }
  EXPECT_THROW(nn::SELayer(4, 8), Error);
  nn::Sinusoidal wave(4, 5);
  EXPECT_TRUE(
      at::allclose(wave(x).features(), at::sin(x.features().mm(wave->kernel) + wave->bias) * wave->coef, 1e-5, 1e-5));
}

TEST(Blocks, GoIntoTorchsSequential) {
  const SparseTensor x = make(60, 3, 4, 7);
  torch::nn::Sequential net(nn::Convolution(nn::ConvolutionOptions{4, 6, {}}), nn::BatchNorm(6), nn::ReLU(),
                            nn::SumPooling(nn::KernelOptions{.kernel_size = {2}, .stride = {2}}),
                            nn::BasicBlock(nn::BlockOptions{.in_channels = 6, .planes = 8}), nn::Dropout(0.1));
  EXPECT_EQ(net->forward<SparseTensor>(x).channels(), 8);
}

TEST(Layers, GoWhereTheCallerSays) {
  const SparseTensor x = make(60, 3, 4, 8);
  nn::Convolution layer(nn::ConvolutionOptions{4, 2, {.stride = {2}}});
  const at::Tensor target = test::to_tensor({{0, 2, 2, 0}, {1, 0, 0, 0}, {0, 2, 2, 0}, {5, -2, 4, 8}}, 4);
  const SparseTensor there = layer(x, target);
  EXPECT_EQ(there.tensor_stride(), (AxisValues{2, 2, 2}));
  ASSERT_EQ(there.size(), 3);
  EXPECT_EQ(there.features()[2].abs().sum().item<float>(), 0);
  // Where the geometry puts an output too, it is the same one.
  const SparseTensor usual = layer(x);
  const SparseTensor at_usual = layer(x, usual.coordinates());
  EXPECT_NE(at_usual.key(), usual.key());
  EXPECT_TRUE(at::equal(at_usual.features(), usual.features()));
  const SparseTensor again = layer(x, there);
  EXPECT_EQ(again.key(), there.key());
  const SparseTensor other = make(30, 3, 1, 9);
  nn::Convolution flat(nn::ConvolutionOptions{4, 2, {}});
  const SparseTensor foreign = flat(x, other);
  EXPECT_EQ(foreign.manager(), x.manager());
  EXPECT_TRUE(at::equal(foreign.coordinates(), other.coordinates()));
  EXPECT_THROW(layer(x, test::to_tensor({{0, 1, 2, 0}}, 4)), Error);
  EXPECT_THROW(layer(x, at::Tensor()), Error);
}

}  // namespace
}  // namespace lockstep::sparse
