// SPDX-License-Identifier: Apache-2.0
// Mixed precision: the same bits in every placement, and a loss scale that finds its height.
#include "lockstep/parallel/autocast.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using lockstep::test::State;
using torch::Tensor;

// Uses its middle layer twice, so that a cached cast would show.
struct LoweredImpl : torch::nn::Cloneable<LoweredImpl> {
  LoweredImpl() { reset(); }
  void reset() override {
    conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
    bn = register_module("bn", torch::nn::BatchNorm2d(8));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)));
    fc = register_module("fc", torch::nn::Linear(8 * 16, 10));
  }
  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(bn(conv1(x))), 2);
    x = torch::relu(conv2(torch::relu(conv2(x))));
    return fc(x.flatten(1));
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Lowered);

struct Precision {
  at::ScalarType dtype;
  OptimizerOptions options;
};

State train_lowered(Replica& me, const Precision& precision) {
  Lowered made;
  norm::convert_sync_batchnorm(*made);
  auto net = me.share(made);
  auto optimizer = me.optimizer(Sgd{.lr = 0.05, .momentum = 0.9}, precision.options);
  Tensor losses = torch::empty({6}, torch::kDouble), scales = torch::empty({6}, torch::kDouble);
  for (int64_t step = 0; step < 6; ++step) {
    const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
    const auto images = at::randn({21, 1, 8, 8}, generator, at::TensorOptions());
    const auto labels = at::randint(10, {21}, generator, at::TensorOptions(at::kLong));
    Tensor loss;
    {
      const Autocast autocast(me.device().type(), precision.dtype);
      const auto logits = net->forward(me.share_of(images));
      EXPECT_EQ(logits.scalar_type(), precision.dtype);
      loss = torch::nn::functional::cross_entropy(logits.to(torch::kFloat), me.share_of(labels));
    }
    const auto result = me.step(loss, optimizer, static_cast<double>(me.share_of(labels).size(0)));
    losses[step] = result.loss;
    scales[step] = optimizer.loss_scale();
  }
  State state = lockstep::test::state_of(me, *net, optimizer);
  state["losses"] = losses;
  state["scales"] = scales;
  return state;
}

TEST(Autocast, InBfloat16GivesTheSameBitsInEveryPlacement) {
  pin_numerics();
  const State state = lockstep::test::expect_same_everywhere({.replicas = 8, .seed = 2}, [](Replica& me) {
    return train_lowered(me, {at::kBFloat16, {}});
  });
  EXPECT_TRUE(state.at("losses").isfinite().all().item<bool>());
  EXPECT_EQ(state.at("weight.conv2.weight").scalar_type(), at::kFloat);
}

TEST(Autocast, InFloat16FindsALossScaleTheSameInEveryPlacement) {
  pin_numerics();
  const State state = lockstep::test::expect_same_everywhere({.replicas = 8, .seed = 2}, [](Replica& me) {
    return train_lowered(me, {at::kHalf, {.initial_scale = 1 << 20, .growth_interval = 2}});
  });
  const auto scales = state.at("scales");
  EXPECT_LT(scales[0].item<double>(), 1 << 20);  // too high: the first step was left out
  EXPECT_GE(state.at("optimizer.steps").item<int64_t>(), 1);
  EXPECT_LT(state.at("optimizer.steps").item<int64_t>(), 6);
  for (const auto& item : state)
    if (item.first.starts_with("weight.")) {
      EXPECT_TRUE(item.second.isfinite().all().item<bool>()) << item.first;
    }
}

TEST(Autocast, DoublesTheScaleAfterGoodStepsAndHalvesItAfterBadOnes) {
  Team::create({.replicas = 2, .devices = "cpu:2"}).run([](Replica& me) {
    auto net = me.share(torch::nn::Linear(2, 1));
    auto optimizer = me.optimizer(Sgd{.lr = 0.01}, {.initial_scale = 8, .growth_interval = 3});
    std::vector<double> scales;
    for (int step = 0; step < 9; ++step) {
      auto x = torch::ones({1, 2});
      if (step == 4 && me.number() == 1) x = x * NAN;
      EXPECT_EQ(me.step(net(x).sum(), optimizer).updated, step != 4);
      scales.push_back(optimizer.loss_scale());
    }
    EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 16, 8, 8, 8, 16, 16}));
    EXPECT_EQ(optimizer.steps(), 8);
    const auto state = optimizer.state_dict();
    EXPECT_EQ(state.at("good_steps").item<int64_t>(), 1);
  });
}

TEST(Autocast, PutsBackWhatWasThere) {
  const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
  {
    const Autocast autocast(at::kCPU, at::kHalf);
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), dtype);
  EXPECT_THAT([] { const Autocast autocast(at::kCPU, at::kFloat); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("expected bfloat16 or float16")));
}

}  // namespace
}  // namespace lockstep::parallel
