// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/functional.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/peers.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "support/devices.h"

namespace lockstep::parallel {
namespace {

namespace F = torch::nn::functional;

using test::cpus;

bool close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-12) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && at::allclose(a, b, tolerance, tolerance);
}

// --- LeNet from scratch, as in chapter 12.5 of Dive into Deep Learning --------------------------------------------

std::vector<at::Tensor> lenet_weights() {
  at::manual_seed(5);
  std::vector<at::Tensor> weights;
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{20, 1, 3, 3}, {20}, {50, 20, 5, 5}, {50}, {800, 128}, {128}, {128, 10}, {10}})
    weights.push_back(at::randn(sizes, at::kDouble) * 0.05);
  return weights;
}

at::Tensor lenet(const at::Tensor& x, const std::vector<at::Tensor>& w) {
  const auto pooled = [](const at::Tensor& h) { return at::avg_pool2d(at::relu(h), {2, 2}, {2, 2}); };
  const at::Tensor h = pooled(at::conv2d(pooled(at::conv2d(x, w[0], w[1])), w[2], w[3]));
  return at::addmm(w[7], at::relu(at::addmm(w[5], h.reshape({h.size(0), -1}), w[4])), w[6]);
}

at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& y) {
  return F::cross_entropy(logits, y, F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

void sgd(const std::vector<at::Tensor>& params, double rate) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& param : params) {
    param.sub_(param.grad() * rate);
    param.mutable_grad().zero_();
  }
}

TEST(Functional, LeNetFromScratchOnTwoDevicesEqualsOne) {
  const ReplicaNumerics one_thread;
  const Devices devices = cpus(2);
  std::vector<std::vector<at::Tensor>> params;
  for (const Device& device : devices) params.push_back(get_params(lenet_weights(), device));
  std::vector<at::Tensor> alone = get_params(lenet_weights(), devices[0]);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::randn({9, 1, 28, 28}, at::kDouble), y = at::randint(10, {9});
    const auto [xs, ys] = split_batch(x, y, devices);
    for (size_t i = 0; i < devices.size(); ++i) loss_sum(lenet(xs[i], params[i]), ys[i]).backward();
    for (size_t p = 0; p < alone.size(); ++p) {
      std::vector<at::Tensor> grads{params[0][p].grad(), params[1][p].grad()};
      all_reduce(grads);
    }
    loss_sum(lenet(x, alone), y).backward();
    for (size_t p = 0; p < alone.size(); ++p) EXPECT_TRUE(close(params[1][p].grad(), alone[p].grad())) << p;
    for (const auto& each : params) sgd(each, 0.2 / 9);
    sgd(alone, 0.2 / 9);
  }
  for (size_t p = 0; p < alone.size(); ++p) {
    EXPECT_TRUE(at::equal(params[0][p], params[1][p]));
    EXPECT_TRUE(close(params[0][p], alone[p]));
  }
}

TEST(Functional, AllReduceAddsInTreeOrderInPlace) {
  std::vector<at::Tensor> parts;
  for (int i = 0; i < 5; ++i) parts.push_back(at::randn({7, 3}).t());
  const at::Tensor expected = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4];
  const std::vector<at::Tensor> held = parts;
  all_reduce(parts);
  for (const at::Tensor& part : held) EXPECT_TRUE(at::equal(part, expected));
  std::vector<at::Tensor> none, uneven{at::ones(2), at::ones(3)};
  EXPECT_THROW(all_reduce(none), Error);
  EXPECT_THROW(all_reduce(uneven), Error);
}

// --- Replicas -------------------------------------------------------------------------------------------------------

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Conv2d(2, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                                      torch::nn::Conv2d(4, 3, 2), torch::nn::BatchNorm2d(3)));
    head = register_module("head", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = body->forward(x);
    return head->forward((h + h.square()).mean({2, 3}) + h.amax({2, 3}));
  }
  torch::nn::Sequential body{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

Net net_of_doubles() {
  at::manual_seed(3);
  Net net;
  net->to(at::kDouble);
  return net;
}

std::vector<at::Tensor> gradients(const Net& net) {
  std::vector<at::Tensor> grads;
  for (const at::Tensor& parameter : net->parameters()) grads.push_back(parameter.grad());
  return grads;
}

TEST(Replicate, GradientsOfTheCopiesAddUpInTheOriginal) {
  const ReplicaNumerics one_thread;
  Net net = net_of_doubles(), alone = net_of_doubles();
  net->eval();  // batch norms that do not couple examples
  alone->eval();
  const at::Tensor x = at::randn({7, 2, 6, 6}, at::kDouble);
  const Devices devices = cpus(3);
  auto replicas = replicate(net, devices);
  EXPECT_TRUE(replicas[1]->head->weight.requires_grad());
  EXPECT_EQ(replicas[1]->head->weight.data_ptr(), net->head->weight.data_ptr()) << "values are not copied";
  EXPECT_NE(replicas[1]->body->buffers()[0].data_ptr(), net->body->buffers()[0].data_ptr());
  const at::Tensor y = gather(parallel_apply(replicas, scatter(x, devices)), devices[0]);
  const at::Tensor expected = alone->forward(x);
  EXPECT_TRUE(close(y, expected));
  y.square().mean().backward();
  expected.square().mean().backward();
  const auto got = gradients(net), wanted = gradients(alone);
  for (size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(close(got[p], wanted[p])) << p;
}

TEST(Replicate, FrozenAndUnusedParametersHaveNoGradient) {
  Net net = net_of_doubles();
  net->eval();
  net->head->weight.requires_grad_(false);
  auto replicas = replicate(net, cpus(2));
  EXPECT_FALSE(replicas[0]->head->weight.requires_grad());
  replicas[1]->body->forward(at::randn({1, 2, 6, 6}, at::kDouble)).sum().backward();
  EXPECT_FALSE(net->head->bias.grad().defined());
  EXPECT_FALSE(net->head->weight.grad().defined());
  EXPECT_TRUE(net->body->parameters()[0].grad().defined());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(replicate(net, cpus(2))[0]->head->bias.requires_grad());
}

struct FixedImpl : torch::nn::Module {
  FixedImpl() {
    weight = register_parameter("weight", at::randn(2));
    buffer = register_buffer("buffer", at::randn(2));
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight + buffer; }
  at::Tensor weight, buffer;
};
struct OuterImpl : torch::nn::Cloneable<OuterImpl> {
  OuterImpl() { OuterImpl::reset(); }
  void reset() override { inner = register_module("inner", std::make_shared<FixedImpl>()); }
  std::shared_ptr<FixedImpl> inner;
};

TEST(Replicate, NamesTheSubmoduleThatCannotBeCloned) {
  const torch::nn::Sequential net(torch::nn::Linear(2, 2), FixedImpl());
  try {
    replicate(net, cpus(2));
    FAIL() << "replicated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("submodule '1' of type"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("Cloneable"), std::string::npos) << error.what();
  }
  EXPECT_THROW(replicate(std::make_shared<FixedImpl>(), cpus(1)), Error);
}

TEST(Replicate, CopiesTheValuesOfAChildThatTheCloneMadeAnew) {
  const auto net = std::make_shared<OuterImpl>();
  for (const auto& replica : replicate(net, cpus(2))) {
    EXPECT_TRUE(at::equal(replica->inner->weight, net->inner->weight));
    EXPECT_TRUE(at::equal(replica->inner->buffer, net->inner->buffer));
  }
}

TEST(ParallelApply, SynchronisedBatchNormEqualsOneDeviceOnTheJoinedBatch) {
  const ReplicaNumerics one_thread;
  for (const int count : {1, 2, 3, 8}) {
    Net net = net_of_doubles(), alone = net_of_doubles();
    EXPECT_EQ(norm::convert_sync_batchnorm(net), 2);
    const Devices devices = cpus(count);
    for (int step = 0; step < 3; ++step) {
      at::manual_seed(step);
      const at::Tensor x = at::randn({7, 2, 6, 6}, at::kDouble);  // with eight replicas one has none
      auto replicas = replicate(net, devices);
      const at::Tensor y = gather(parallel_apply(replicas, scatter(x, devices)), devices[0]);
      const at::Tensor expected = alone->forward(x);
      EXPECT_TRUE(close(y, expected));
      y.square().mean().backward();
      expected.square().mean().backward();
    }
    const auto got = gradients(net), wanted = gradients(alone);
    for (size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(close(got[p], wanted[p], 1e-11)) << p;
    for (size_t b = 0; b < net->buffers().size(); ++b) EXPECT_TRUE(close(net->buffers()[b], alone->buffers()[b])) << b;
  }
}

TEST(ParallelApply, GivesTheSameBitsInAnyTiming) {
  const ReplicaNumerics one_thread;
  std::vector<at::Tensor> first;
  for (int repeat = 0; repeat < 6; ++repeat) {
    at::manual_seed(3);
    Net net;
    norm::convert_sync_batchnorm(net);
    const at::Tensor x = at::randn({9, 2, 6, 6});
    auto replicas = replicate(net, cpus(4));
    std::vector<int> numbers{0, 1, 2, 3};
    std::vector<std::function<at::Tensor(const at::Tensor&, int)>> late;
    for (auto& replica : replicas)
      late.emplace_back([replica, repeat](const at::Tensor& share, int number) mutable {
        std::this_thread::sleep_for(std::chrono::milliseconds((number * 3 + repeat * 5) % 7));
        return replica->forward(share);
      });
    std::vector<std::tuple<int>> more(numbers.begin(), numbers.end());
    gather(parallel_apply(late, scatter(x, cpus(4)), more), cpus(1)[0]).square().sum().backward();
    if (repeat == 0) first = gradients(net);
    for (size_t p = 0; p < first.size(); ++p) EXPECT_TRUE(at::equal(gradients(net)[p], first[p])) << p;
  }
}

TEST(ParallelApply, DropoutRepeatsWithTheSeedAndDiffersBetweenReplicas) {
  std::vector<std::function<at::Tensor(const at::Tensor&)>> replicas(
      3, [](const at::Tensor& x) { return at::dropout(at::dropout(x, 0.5, true), 0.5, true); });
  const auto run = [&] { return at::stack(parallel_apply(replicas, scatter(at::ones(300), cpus(3)))); };
  at::manual_seed(4);
  const at::Tensor first = run(), second = run();
  at::manual_seed(4);
  const Net net;  // moves the generator on, replicate() does not
  at::manual_seed(4);
  replicate(net, cpus(2));
  EXPECT_TRUE(at::equal(run(), first));
  EXPECT_TRUE(at::equal(run(), second));
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_FALSE(at::equal(first[0], first[1]));
}

TEST(ParallelApply, SpreadsTuplesAndTakesTheCallersModes) {
  auto sum = [](const at::Tensor& a, const at::Tensor& b, double factor) {
    EXPECT_FALSE(at::GradMode::is_enabled());
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(current_peers()->replicas(), 2);
    return std::pair(a + b * factor, current_peers()->replica());
  };
  std::vector<decltype(sum)> replicas{sum, sum};
  const at::NoGradGuard no_grad;
  const auto inputs = scatter(std::pair(at::ones(4), at::ones(4)), cpus(2));
  const auto outputs = parallel_apply(replicas, inputs, std::vector<std::tuple<double>>{{2.}, {3.}});
  EXPECT_TRUE(at::equal(outputs[0].first, at::full({2}, 3.)));
  EXPECT_TRUE(at::equal(outputs[1].first, at::full({2}, 4.)));
  EXPECT_EQ(outputs[1].second, 1);
  EXPECT_EQ(current_peers(), nullptr);
  EXPECT_THROW(parallel_apply(replicas, inputs, std::vector<std::tuple<double>>{{1.}}), Error);
}

TEST(ParallelApply, RethrowsWithTheReplicasNumberAfterAllHaveEnded) {
  std::atomic<int> ended{0};
  std::vector<std::function<void(int)>> replicas(3, [&](int number) {
    if (number == 1) throw std::runtime_error("out of luck");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++ended;
  });
  try {
    parallel_apply(replicas, std::vector<int>{0, 1, 2});
    FAIL() << "nothing was thrown";
  } catch (const ReplicaError& error) {
    EXPECT_EQ(error.replica(), 1);
    EXPECT_STREQ(error.what(), "replica 1: out of luck");
  }
  EXPECT_EQ(ended, 2);
}

TEST(ParallelApply, WhoWaitsForAFailedOrFinishedReplicaIsWoken) {
  torch::nn::BatchNorm1d layer(3);
  norm::convert_sync_batchnorm(layer);
  const auto run = [&](bool fails) {
    std::vector<std::function<at::Tensor(int)>> replicas(3, [&, fails](int number) {
      if (number == 2 && fails) throw std::runtime_error("lost");
      if (number == 2) return at::Tensor();
      return norm::sync_batch_norm(at::randn({4, 3}), {}, {}, {}, {}, 0.1, 1e-5, norm::BatchNormMode::synchronised,
                                   current_peers());
    });
    try {
      parallel_apply(replicas, std::vector<int>{0, 1, 2});
    } catch (const ReplicaError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(run(true), "replica 2: lost");
  EXPECT_NE(run(false).find("expected the same synchronised layers on every replica"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::parallel
