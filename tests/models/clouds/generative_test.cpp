// SPDX-License-Identifier: Apache-2.0
// Networks that make clouds: the one that completes them, and the variational autoencoder.
#include "lockstep/models/clouds/generative.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/models/clouds/completion.h"
#include "lockstep/models/clouds/vae.h"
#include "lockstep/numerics/random.h"
#include "models/network_checks.h"
#include "support/slow_network.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;
using test::shape_of;
using test::SlowCloud;

constexpr int64_t kSide = 8;

/// A square ring and a cross in 2-D, as wide as the networks of these tests can make them.
std::vector<test::Point> shapes() {
  std::vector<test::Point> points;
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t j = 0; j < kSide; ++j) {
      if (i == 1 || i == 6 || j == 1 || j == 6) points.push_back({0, i, j});
      if (i == j || i + j == kSide - 1) points.push_back({1, i, j});
    }
  return points;
}

struct Task {
  SparseTensor partial;
  sparse::CoordinateMapKey target;
};

/// The left part of the shapes is given, all of them is to be made.
Task completion_task(at::ScalarType type = at::kDouble) {
  const auto all = shapes();
  std::vector<test::Point> left;
  for (const test::Point& point : all)
    if (point[1] < 3) left.push_back(point);
  Task task;
  const auto rows = static_cast<int64_t>(left.size());
  task.partial = SparseTensor(at::ones({rows, 1}, type), sparse::test::to_tensor(left, 3));
  task.target = task.partial.manager()->insert(sparse::test::to_tensor(all, 3), {1, 1}, "target").key;
  return task;
}

SparseTensor whole_cloud(at::ScalarType type = at::kDouble) {
  const auto all = shapes();
  return {at::ones({static_cast<int64_t>(all.size()), 1}, type), sparse::test::to_tensor(all, 3)};
}

CompletionNet small_completion() {
  torch::manual_seed(6);
  CompletionNet net(CompletionOptions{.dimension = 2, .channels = {4, 6, 8, 10}});
  test::scramble_statistics(*net);
  net->to(at::kDouble);
  return net;
}

Vae small_vae() {
  torch::manual_seed(7);
  Vae net(VaeOptions{.dimension = 2, .channels = {4, 8, 16}});
  net->to(at::kDouble);
  return net;
}

std::set<test::Point> points_of(const SparseTensor& x) {
  const auto points = sparse::test::to_points(x.coordinates());
  return {points.begin(), points.end()};
}

/// The losses of so many steps of plain gradient descent; loss_of(step) says what a step minimises.
template <class LossOf>
std::vector<double> train(torch::nn::Module& net, int steps, int threads, const LossOf& loss_of) {
  at::set_num_threads(threads);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor loss = loss_of(step);
    net.zero_grad();
    loss.backward();
    if (step == 0) test::expect_gradients_everywhere(net);
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    for (auto& parameter : net.parameters()) parameter.sub_(0.3 * parameter.grad());
  }
  at::set_num_threads(1);
  return losses;
}

/// That the cloud has nine of ten points of the shapes, and not many others.
void expect_shapes(const SparseTensor& cloud) {
  const auto got = points_of(cloud), expected = points_of(whole_cloud());
  size_t right = 0;
  for (const test::Point& point : expected) right += got.count(point);
  EXPECT_GT(static_cast<double>(right), 0.9 * static_cast<double>(expected.size()));
  EXPECT_LT(static_cast<double>(got.size()), 1.1 * static_cast<double>(expected.size()));
}

TEST(CompletionNet, HasMinkowskiEnginesNamesAndShapes) {
  const CompletionNet net(CompletionOptions{});
  EXPECT_EQ(shape_of(*net, "enc_block_s1.0.kernel"), "[27, 1, 16]");
  EXPECT_EQ(shape_of(*net, "enc_block_s1s2.0.kernel"), "[8, 16, 32]");
  EXPECT_EQ(shape_of(*net, "enc_block_s32s64.3.kernel"), "[27, 1024, 1024]");
  EXPECT_EQ(shape_of(*net, "enc_block_s32s64.4.bn.weight"), "[1024]");
  EXPECT_EQ(shape_of(*net, "dec_block_s64s32.0.kernel"), "[64, 1024, 512]");
  EXPECT_EQ(shape_of(*net, "dec_block_s32s16.0.kernel"), "[8, 512, 256]");
  EXPECT_EQ(shape_of(*net, "dec_s32_cls.kernel"), "[512, 1]");
  EXPECT_EQ(shape_of(*net, "dec_s32_cls.bias"), "[1, 1]");
  EXPECT_EQ(shape_of(*net, "dec_block_s2s1.3.kernel"), "[27, 16, 16]");
  EXPECT_EQ(shape_of(*net, "dec_s1_cls.kernel"), "[16, 1]");
  EXPECT_EQ(net->parameters().size(), 3 + 6 * 6 + 6 * 8);
}

SlowCloud slow_stack(const test::SlowNetwork& layers, const std::string& name, const SlowCloud& x, int64_t stride,
                     bool grows) {
  SlowCloud y = grows ? layers.grow(name + ".0", x, stride) : layers.convolve(name + ".0", x, stride);
  y = test::elu(layers.norm(name + ".1", y));
  return test::elu(layers.norm(name + ".4", layers.convolve(name + ".3", y)));
}

TEST(CompletionNet, ComputesWhatItsDefinitionSays) {
  CompletionNet net = small_completion();
  net->eval();
  const test::SlowNetwork layers(*net);
  const Task task = completion_task();
  std::vector<SlowCloud> skips{
      test::elu(layers.norm("enc_block_s1.1", layers.convolve("enc_block_s1.0", test::slow(task.partial))))};
  for (const char* name : {"enc_block_s1s2", "enc_block_s2s4", "enc_block_s4s8"})
    skips.push_back(slow_stack(layers, name, skips.back(), 2, /*grows=*/false));
  SlowCloud y = skips[3];
  const at::NoGradGuard no_grad;
  const Generated made = net->forward(task.partial, task.target);
  ASSERT_EQ(made.logits.size(), 3);
  for (const int level : {2, 1, 0}) {
    const std::string fine = "s" + std::to_string(1 << level), coarse = "s" + std::to_string(2 << level);
    y = test::add(slow_stack(layers, text("dec_block_", coarse, fine), y, 2, /*grows=*/true), skips[level]);
    const SlowCloud logits = layers.convolve("dec_" + fine + "_cls", y);
    const SparseTensor& got = made.logits[2 - level];
    test::expect_same(got, logits);
    const auto wanted = test::rounded(shapes(), int64_t{1} << level);
    const auto voxels = sparse::test::to_points(got.coordinates());
    for (size_t i = 0; i < voxels.size(); ++i)
      EXPECT_EQ(made.targets[2 - level][static_cast<int64_t>(i)].item<bool>(),
                std::ranges::find(wanted, voxels[i]) != wanted.end());
    y = test::prune(y, logits.rows.squeeze(1).gt(0));
  }
  test::expect_same(made.cloud, y);
}

TEST(CompletionNet, LearnsToCompleteCloudsTheSameForAnyNumberOfThreads) {
  const auto train_with = [](CompletionNet net, int threads) {
    return train(*net, /*steps=*/100, threads, [&](int) {
      const Task task = completion_task();
      return occupancy_loss(net->forward(task.partial, task.target));
    });
  };
  CompletionNet net = small_completion();
  const auto losses = train_with(net, 1);
  EXPECT_LT(losses.back(), 0.2 * losses.front());
  EXPECT_EQ(train_with(small_completion(), 2), losses);
  const at::NoGradGuard no_grad;
  const Task task = completion_task();
  expect_shapes(net->forward(task.partial, task.target).cloud);  // the finest resolution is not forced
}

TEST(CompletionNet, NeedsNoTargetInEvaluationAndMayMakeNothing) {
  CompletionNet net = small_completion();
  net->eval();
  const at::NoGradGuard no_grad;
  for (auto& item : net->named_parameters())
    if (item.key() == "dec_s4_cls.bias") item.value().fill_(-1e6);
  const Generated made = net->forward(completion_task().partial);
  EXPECT_TRUE(made.targets.empty());
  ASSERT_EQ(made.logits.size(), 3);
  EXPECT_GT(made.logits[0].size(), 0);
  // What the encoder saw is added at the next resolution, and may be kept there.
  EXPECT_EQ(
      made.logits[1].size(),
      static_cast<int64_t>(test::rounded(sparse::test::to_points(completion_task().partial.coordinates()), 2).size()));
  const Generated none = net->forward(SparseTensor(at::empty({0, 1}, at::kDouble), at::empty({0, 3}, at::kInt)));
  EXPECT_EQ(none.cloud.size(), 0);
}

TEST(CompletionNet, SaysWhatItExpects) {
  EXPECT_THAT([] { CompletionNet net(CompletionOptions{.channels = {4}}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("of 1 resolutions, expected two at least")));
  EXPECT_THAT([] { small_completion()->forward(completion_task().partial); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("there is no target, expected one in training")));
  EXPECT_THROW(occupancy_loss({}), Error);
}

TEST(OccupancyLoss, IsAMeanOverResolutionsOfMeansOverVoxels) {
  const auto level = [](const std::vector<double>& logits) {
    const auto rows = static_cast<int64_t>(logits.size());
    const at::Tensor coordinates = at::stack({at::zeros({rows}, at::kInt), at::arange(rows).to(at::kInt)}, 1);
    return SparseTensor(at::tensor(logits, at::kDouble).unsqueeze(1), coordinates);
  };
  Generated made;
  made.logits = {level({2, -1}), level({0.5}), level({})};
  made.targets = {at::ones({2}, at::kBool), at::zeros({1}, at::kBool), at::empty({0}, at::kBool)};
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  const double expected = ((softplus(-2) + softplus(1)) / 2 + softplus(0.5) + 0) / 3;
  EXPECT_NEAR(occupancy_loss(made).item<double>(), expected, 1e-12);
}

TEST(Vae, HasMinkowskiEnginesNamesAndShapes) {
  const Vae net(VaeOptions{});
  EXPECT_EQ(net->options.resolution(), 128);
  EXPECT_EQ(shape_of(*net, "encoder.block1.0.kernel"), "[27, 1, 16]");
  EXPECT_EQ(shape_of(*net, "encoder.block7.3.kernel"), "[27, 1024, 1024]");
  EXPECT_EQ(shape_of(*net, "encoder.block7.4.bn.bias"), "[1024]");
  EXPECT_EQ(shape_of(*net, "encoder.linear_mean.linear.weight"), "[1024, 1024]");
  EXPECT_EQ(shape_of(*net, "encoder.linear_log_var.linear.bias"), "[1024]");
  EXPECT_EQ(shape_of(*net, "decoder.block1.0.kernel"), "[8, 1024, 1024]");
  EXPECT_EQ(shape_of(*net, "decoder.block1.6.kernel"), "[8, 1024, 512]");
  EXPECT_EQ(shape_of(*net, "decoder.block1.10.bn.weight"), "[512]");
  EXPECT_EQ(shape_of(*net, "decoder.block1_cls.kernel"), "[512, 1]");
  EXPECT_EQ(shape_of(*net, "decoder.block6.0.kernel"), "[8, 32, 16]");
  EXPECT_EQ(shape_of(*net, "decoder.block6_cls.bias"), "[1, 1]");
  EXPECT_EQ(shape_of(*net, "decoder.block7.0.kernel"), "none");
  EXPECT_EQ(net->parameters().size(), 7 * 6 + 4 + 14 + 5 * 8);
}

TEST(Vae, ComputesWhatItsDefinitionSays) {
  Vae net = small_vae();
  test::scramble_statistics(*net);
  net->eval();
  const test::SlowNetwork layers(*net);
  SlowCloud y = test::slow(whole_cloud());
  for (const char* name : {"encoder.block1", "encoder.block2", "encoder.block3"})
    y = slow_stack(layers, name, y, 2, /*grows=*/false);
  ASSERT_EQ(y.points.size(), 2);  // one voxel a cloud, so the mean over them is itself
  const at::Tensor code = layers.linear("encoder.linear_mean.linear", y.rows);

  const at::NoGradGuard no_grad;
  const Reconstruction got = net->forward(whole_cloud());
  EXPECT_TRUE(at::allclose(got.latent.mean.features(), code, 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(got.latent.log_variance.features(), layers.linear("encoder.linear_log_var.linear", y.rows),
                           1e-10, 1e-12));
  y = {{{0, 0, 0}, {1, 0, 0}}, code, kSide};
  y = slow_stack(layers, "decoder.block1", y, 2, /*grows=*/true);
  y = test::elu(layers.norm("decoder.block1.7", layers.grow("decoder.block1.6", y, 2)));
  y = test::elu(layers.norm("decoder.block1.10", layers.convolve("decoder.block1.9", y)));
  SlowCloud logits = layers.convolve("decoder.block1_cls", y);
  test::expect_same(got.generated.logits[0], logits);
  y = slow_stack(layers, "decoder.block2", test::prune(y, logits.rows.squeeze(1).gt(0)), 2, /*grows=*/true);
  logits = layers.convolve("decoder.block2_cls", y);
  test::expect_same(got.generated.logits[1], logits);
  test::expect_same(got.generated.cloud, test::prune(y, logits.rows.squeeze(1).gt(0)));
}

TEST(Vae, LearnsToReconstructClouds) {
  const auto train_with = [](Vae net, int threads) {
    return train(*net, /*steps=*/80, threads, [&](int step) {
      const RandomScope random(RandomKey{5}.fold(step));
      const SparseTensor x = whole_cloud();
      const Reconstruction made = net->forward(x, x.key());
      return occupancy_loss(made.generated) + 0.01 * latent_divergence(made.latent);
    });
  };
  Vae net = small_vae();
  const auto losses = train_with(net, 1);
  EXPECT_LT(losses.back(), 0.3 * losses.front());
  EXPECT_EQ(train_with(small_vae(), 2), losses);
  const at::NoGradGuard no_grad;
  net->eval();
  expect_shapes(net->forward(whole_cloud()).generated.cloud);
}

TEST(Vae, DrawsItsCodeByKeyInTrainingAlone) {
  Vae net = small_vae();
  const auto logits = [&](uint64_t key) {
    const RandomScope random(RandomKey{key});
    const SparseTensor x = whole_cloud();
    return net->forward(x, x.key()).generated.logits[0].features();
  };
  EXPECT_TRUE(at::equal(logits(1), logits(1)));
  EXPECT_FALSE(at::equal(logits(1), logits(2)));
  net->eval();
  EXPECT_TRUE(at::equal(logits(1), logits(2)));
}

TEST(Vae, DivergenceIsThatOfNormalDistributions) {
  const SparseTensor at_origin(at::tensor({0.5, -1., 2., 0.}).view({2, 2}),
                               at::tensor({0, 0, 1, 0}).view({2, 2}).to(at::kInt));
  const LatentDistribution latent{at_origin, at_origin.with_features(at::tensor({0., 1., -1., 0.}).view({2, 2}))};
  double expected = 0;
  for (const auto& [mean, log_variance] : {std::pair(0.5, 0.), {-1., 1.}, {2., -1.}, {0., 0.}})
    expected += 0.5 * (mean * mean + std::exp(log_variance) - log_variance - 1) / 4;
  EXPECT_NEAR(latent_divergence(latent).item<double>(), expected, 1e-6);
}

TEST(Vae, TakesNoPointsAndRefusesThoseItCannotMake) {
  Vae net = small_vae();
  net->eval();
  const SparseTensor none(at::empty({0, 1}, at::kDouble), at::empty({0, 3}, at::kInt));
  const Reconstruction made = net->forward(none, none.key());
  EXPECT_EQ(made.generated.cloud.size(), 0);
  EXPECT_EQ((occupancy_loss(made.generated) + latent_divergence(made.latent)).item<double>(), 0);
  const SparseTensor outside(at::ones({1, 1}, at::kDouble),
                             at::tensor({int64_t{0}, int64_t{3}, kSide}).view({1, 3}).to(at::kInt));
  EXPECT_THAT([&] { net->forward(outside); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expected all coordinates between these")));
  net->train();
  EXPECT_THAT([&] { net->forward(whole_cloud()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expected one in training")));
}

TEST(Generative, CopiesComputeTheSame) {
  CompletionNet completion = small_completion();
  Vae vae = small_vae();
  const auto copy = std::dynamic_pointer_cast<CompletionNetImpl>(completion->clone());
  const auto vae_copy = std::dynamic_pointer_cast<VaeImpl>(vae->clone());
  for (torch::nn::Module* net :
       std::initializer_list<torch::nn::Module*>{completion.get(), copy.get(), vae.get(), vae_copy.get()})
    net->eval();
  const at::NoGradGuard no_grad;
  const Task task = completion_task(), again = completion_task();
  EXPECT_TRUE(
      at::equal(copy->forward(task.partial).cloud.features(), completion->forward(again.partial).cloud.features()));
  EXPECT_TRUE(at::equal(vae_copy->forward(whole_cloud()).generated.logits.back().features(),
                        vae->forward(whole_cloud()).generated.logits.back().features()));
  copy->parameters()[0].zero_();
  EXPECT_GT(completion->parameters()[0].abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace lockstep::models
