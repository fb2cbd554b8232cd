// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>

#include <array>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "support/thread_peers.h"

namespace lockstep::norm {
namespace {

using test::run_on_threads;

struct NormedImpl : torch::nn::Cloneable<NormedImpl> {
  NormedImpl() { NormedImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::BatchNorm2d(3));
    body = register_module("body", torch::nn::Sequential(torch::nn::Conv2d(3, 3, 1), torch::nn::BatchNorm2d(3)));
  }
  at::Tensor forward(const at::Tensor& x) { return body->forward(first->forward(x)); }
  torch::nn::BatchNorm2d first{nullptr};
  torch::nn::Sequential body{nullptr};
};
TORCH_MODULE(Normed);

/// Whether the network sees its peers, told by one replica's output that changes with the other's input.
bool is_synchronised(const std::function<Normed()>& make) {
  std::array nets{make(), make()};  // here, as torch::save is not meant for two threads at once
  std::vector<at::Tensor> outputs(2);
  run_on_threads(2, [&](int64_t r) {
    const at::NoGradGuard no_grad;
    Normed& net = nets[r];
    for (at::Tensor& parameter : net->parameters()) parameter.fill_(0.5);
    const at::Tensor x = at::arange(24, at::kFloat).view({2, 3, 2, 2});
    outputs[r] = net->forward(r == 0 ? x : x * x + 1);
  });
  const at::NoGradGuard no_grad;
  Normed alone;
  for (at::Tensor& parameter : alone->parameters()) parameter.fill_(0.5);
  return !at::allclose(outputs[0], alone->forward(at::arange(24, at::kFloat).view({2, 3, 2, 2})), 1e-3, 1e-3);
}

TEST(ConvertSyncBatchNorm, MarksNestedLayersAndLeavesOthersAlone) {
  EXPECT_TRUE(is_synchronised([] {
    Normed net;
    EXPECT_EQ(convert_sync_batchnorm(net), 2);
    return net;
  }));
  EXPECT_FALSE(is_synchronised([] { return Normed(); }));
}

TEST(ConvertSyncBatchNorm, MarksAreCopiedToClones) {
  EXPECT_FALSE(is_synchronised([] {
    Normed net;
    convert_sync_batchnorm(net);
    return Normed(std::dynamic_pointer_cast<NormedImpl>(net->clone()));
  }));
  EXPECT_TRUE(is_synchronised([] {
    Normed net;
    convert_sync_batchnorm(net);
    auto clone = net->clone();
    copy_marks(*net, *clone);
    return Normed(std::dynamic_pointer_cast<NormedImpl>(clone));
  }));
}

TEST(ConvertSyncBatchNorm, MarksStayWhereALayerIsMovedOrLoaded) {
  EXPECT_TRUE(is_synchronised([] {
    Normed net;
    convert_sync_batchnorm(net);
    std::stringstream file;
    torch::save(net, file);
    net->to(at::kDouble);
    net->to(at::kFloat);
    torch::load(net, file);
    return net;
  }));
}

TEST(ConvertSyncBatchNorm, MarksDieWithTheirLayers) {
  for (int i = 0; i < 300; ++i) {
    Normed net;
    convert_sync_batchnorm(net);
  }
  EXPECT_FALSE(is_synchronised([] { return Normed(); }));
}

TEST(ConvertSyncBatchNorm, AnUnmarkedLayerHasTorchsBits) {
  Normed marked;
  convert_sync_batchnorm(marked);
  torch::nn::BatchNorm2d layer(3);
  const at::Tensor x = at::randn({4, 3, 5, 5}), mean = at::zeros(3), var = at::ones(3);
  run_on_threads(2, [&](int64_t) {
    const auto expected = at::native_batch_norm(x, layer->weight, layer->bias, {}, {}, true, 0.1, 1e-5);
    EXPECT_TRUE(
        at::equal(at::batch_norm(x, layer->weight, layer->bias, {}, {}, true, 0.1, 1e-5, true), std::get<0>(expected)));
  });
}

TEST(ConvertSyncBatchNorm, EvaluationUsesTheRunningStatistics) {
  run_on_threads(2, [&](int64_t r) {
    torch::nn::BatchNorm2d layer(3), plain(3);
    convert_sync_batchnorm(layer);
    layer->eval();
    plain->eval();
    if (r == 1) return;  // nobody waits for this one
    const at::Tensor x = at::randn({4, 3, 5, 5});
    EXPECT_TRUE(at::equal(layer->forward(x), plain->forward(x)));
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(layer->forward(x), plain->forward(x)));
  });
}

// The other replicas' backward passes wait for it.
TEST(ConvertSyncBatchNorm, AShareWithoutExamplesTakesPartInATeamsStep) {
  at::manual_seed(1);
  const auto images = at::randn({4, 3, 2, 2}, at::kDouble);
  const auto train = [&](int64_t replicas) {
    at::manual_seed(2);
    Normed made;
    made->to(at::kDouble);
    convert_sync_batchnorm(made);
    std::vector<at::Tensor> weights;
    parallel::Team::create({.replicas = replicas, .devices = "cpu:2"}).run([&](parallel::Replica& me) {
      auto net = me.share(made);
      auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.1});
      const auto mine = me.number() == 0 ? images : images.slice(0, 0, 0);  // the first has all of them
      const auto y = net->forward(mine);
      const auto loss = mine.size(0) > 0 ? y.pow(3).mean() : y.sum();
      me.step(loss, optimizer, static_cast<double>(mine.size(0)));
      if (me.number() != 0) return;
      for (const auto& parameter : net->parameters()) weights.push_back(parameter.detach().clone());
    });
    return weights;
  };
  const auto one = train(1), three = train(3);
  ASSERT_EQ(one.size(), three.size());
  for (size_t p = 0; p < one.size(); ++p) EXPECT_TRUE(at::allclose(three[p], one[p], 1e-10, 1e-12)) << p;
}

TEST(ConvertSyncBatchNorm, RefusesWhatCannotBeMarked) {
  torch::nn::Sequential net(
      torch::nn::ReLU(),
      torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(3).affine(false).track_running_stats(false)));
  try {
    convert_sync_batchnorm(net);
    FAIL() << "converted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer '1' has neither"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::norm
