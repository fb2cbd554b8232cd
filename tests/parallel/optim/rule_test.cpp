// SPDX-License-Identifier: Apache-2.0
// Every rule against torch::optim's, where it has one, and against its formula in float64.
#include "lockstep/parallel/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"

namespace lockstep::parallel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

// Sizes that are no multiple of any vector's width, and one of several pieces.
struct ModelImpl : torch::nn::Cloneable<ModelImpl> {
  ModelImpl() { reset(); }
  void reset() override {
    matrix = register_parameter("matrix", torch::empty({301, 233}));
    bias = register_parameter("bias", torch::empty({37}));
    scalar = register_parameter("scalar", torch::empty({}));
  }
  // A loss whose gradient changes with the weights, of different sizes for different elements.
  Tensor loss(const Tensor& a, const Tensor& b) const {
    return (matrix * a).sin().sum() + (bias * b).square().sum() * 1e-3 + scalar.square();
  }
  Tensor matrix, bias, scalar;
};
TORCH_MODULE(Model);

struct Data {
  Tensor matrix, bias, scalar, a, b;
};

Data data(at::ScalarType dtype) {
  torch::manual_seed(1);
  return {torch::randn({301, 233}).to(dtype), torch::randn({37}).to(dtype), torch::randn({}).to(dtype),
          torch::randn({301, 233}).to(dtype), torch::randn({37}).to(dtype)};
}

Model net(const Data& from) {
  Model made;
  made->to(from.a.scalar_type());
  const torch::NoGradGuard no_grad;
  made->matrix.copy_(from.matrix);
  made->bias.copy_(from.bias);
  made->scalar.copy_(from.scalar);
  return made;
}

std::vector<Tensor> with_torch(torch::optim::Optimizer& optimizer, Model net, const Data& from, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net->loss(from.a, from.b).backward();
    optimizer.step();
  }
  std::vector<Tensor> out;
  for (const auto& parameter : net->parameters()) out.push_back(parameter.detach().clone());
  return out;
}

std::vector<Tensor> with_lockstep(const Rule& rule, const Data& from, int steps, OptimizerOptions options = {}) {
  std::vector<Tensor> out;
  Team::create({.devices = "cpu:1"}).run([&](Replica& me) {
    auto mine = me.share(net(from));
    auto optimizer = me.optimizer(rule, options);
    for (int step = 0; step < steps; ++step) me.step(mine->loss(from.a, from.b), optimizer);
    for (const auto& parameter : mine->parameters()) out.push_back(parameter.detach().clone());
  });
  return out;
}

template <class Options>
std::vector<Tensor> with_torch(const Options& options, const Data& from, int steps) {
  using namespace torch::optim;
  Model theirs = net(from);
  const auto run = [&](auto&& optimizer) { return with_torch(optimizer, theirs, from, steps); };
  if constexpr (std::is_same_v<Options, SGDOptions>) return run(SGD(theirs->parameters(), options));
  if constexpr (std::is_same_v<Options, AdamOptions>) return run(torch::optim::Adam(theirs->parameters(), options));
  if constexpr (std::is_same_v<Options, AdamWOptions>) return run(torch::optim::AdamW(theirs->parameters(), options));
  if constexpr (std::is_same_v<Options, RMSpropOptions>) return run(RMSprop(theirs->parameters(), options));
  if constexpr (std::is_same_v<Options, AdagradOptions>)
    return run(torch::optim::Adagrad(theirs->parameters(), options));
}

template <class Options>
void expect_torchs_bits(const Rule& rule, const Options& options) {
  const Data from = data(torch::kFloat);
  const auto expected = with_torch(options, from, 5), got = with_lockstep(rule, from, 5);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(torch::equal(got[p], expected[p])) << "parameter " << p;
}

// torch's square root of many numbers is MKL's and off by one bit for every sixth; ours is rounded correctly. So one
// float32 step agrees nearly to that bit, and five float64 steps, which feed it back, to far less than a float32
// rounding.
template <class Options>
void expect_torchs_values(const Rule& rule, const Options& options) {
  for (const auto& [dtype, steps, tolerance] :
       {std::tuple(torch::kFloat, 1, 1e-6), std::tuple(torch::kDouble, 5, 1e-11)}) {
    const Data from = data(dtype);
    const auto expected = with_torch(options, from, steps), got = with_lockstep(rule, from, steps);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t p = 0; p < got.size(); ++p)
      EXPECT_TRUE(torch::allclose(got[p], expected[p], tolerance, tolerance))
          << "parameter " << p << ", " << steps
          << " steps: " << (got[p] - expected[p]).abs().max().template item<double>();
  }
}

TEST(Rules, SgdHasTorchsBits) {
  using O = torch::optim::SGDOptions;
  expect_torchs_bits(Sgd{.lr = 0.1}, O(0.1));
  expect_torchs_bits(Sgd{.lr = 0.1, .momentum = 0.9}, O(0.1).momentum(0.9));
  expect_torchs_bits(Sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 1e-2},
                     O(0.1).momentum(0.9).dampening(0.1).weight_decay(1e-2));
  expect_torchs_bits(Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-2, .nesterov = true},
                     O(0.1).momentum(0.9).weight_decay(1e-2).nesterov(true));
}

TEST(Rules, AdamHasTorchsValues) {
  using O = torch::optim::AdamOptions;
  expect_torchs_values(Adam{.lr = 0.1}, O(0.1));
  expect_torchs_values(Adam{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 1e-2},
                       O(0.1).betas({0.8, 0.95}).weight_decay(1e-2));
  expect_torchs_values(Adam{.lr = 0.1, .amsgrad = true}, O(0.1).amsgrad(true));
}

TEST(Rules, AdamWHasTorchsValues) {
  using O = torch::optim::AdamWOptions;
  expect_torchs_values(AdamW{.lr = 0.1}, O(0.1));
  expect_torchs_values(AdamW{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}, O(0.1).weight_decay(0.1).amsgrad(true));
}

TEST(Rules, RmsPropHasTorchsValues) {
  using O = torch::optim::RMSpropOptions;
  expect_torchs_values(RmsProp{.lr = 0.1}, O(0.1));
  expect_torchs_values(RmsProp{.lr = 0.1, .weight_decay = 1e-2, .momentum = 0.9},
                       O(0.1).weight_decay(1e-2).momentum(0.9));
  expect_torchs_values(RmsProp{.lr = 0.1, .centered = true}, O(0.1).centered(true));
}

TEST(Rules, AdagradHasTorchsValues) {
  using O = torch::optim::AdagradOptions;
  expect_torchs_values(Adagrad{.lr = 0.1}, O(0.1));
  expect_torchs_values(Adagrad{.lr = 0.1, .lr_decay = 0.1, .weight_decay = 1e-2, .initial_accumulator_value = 0.5},
                       O(0.1).lr_decay(0.1).weight_decay(1e-2).initial_accumulator_value(0.5));
}

Tensor gradient_of(const Tensor& weight, const std::function<Tensor(const Tensor&)>& loss) {
  const auto leaf = weight.detach().clone().requires_grad_();
  loss(leaf).backward();
  return leaf.grad();
}

TEST(Rules, LarsFollowsItsFormula) {
  const Data from = data(torch::kDouble);
  const Lars rule{.lr = 0.5, .momentum = 0.9, .weight_decay = 1e-2, .trust = 0.02};
  Tensor w = from.matrix.clone(), velocity = torch::zeros_like(w), bias = from.bias.clone(), bias_velocity;
  for (int step = 0; step < 3; ++step) {
    const Tensor g = gradient_of(w, [&](const Tensor& x) { return (x * from.a).sin().sum(); });
    const double trust = rule.trust * w.norm().item<double>() /
                         (g.norm().item<double>() + rule.weight_decay * w.norm().item<double>() + rule.eps);
    velocity = rule.momentum * velocity + trust * (g + rule.weight_decay * w);
    w = w - rule.lr * velocity;
    const Tensor h = 2e-3 * bias * from.b * from.b;
    bias_velocity = step == 0 ? h : rule.momentum * bias_velocity + h;
    bias = bias - rule.lr * bias_velocity;
  }
  const auto got = with_lockstep(rule, from, 3);
  EXPECT_TRUE(torch::allclose(got[0], w, 1e-11, 1e-13));
  EXPECT_TRUE(torch::allclose(got[1], bias, 1e-11, 1e-13));
}

TEST(Rules, LambFollowsItsFormula) {
  const Data from = data(torch::kDouble);
  const Lamb rule{.lr = 0.1, .weight_decay = 1e-2};
  Tensor w = from.matrix.clone(), m = torch::zeros_like(w), v = torch::zeros_like(w);
  for (int step = 1; step <= 3; ++step) {
    const Tensor g = gradient_of(w, [&](const Tensor& x) { return (x * from.a).sin().sum(); });
    m = rule.beta1 * m + (1 - rule.beta1) * g;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    const Tensor u = m / (1 - std::pow(rule.beta1, step)) / ((v / (1 - std::pow(rule.beta2, step))).sqrt() + rule.eps) +
                     rule.weight_decay * w;
    w = w - rule.lr * (w.norm() / u.norm()) * u;
  }
  EXPECT_TRUE(torch::allclose(with_lockstep(rule, from, 3)[0], w, 1e-10, 1e-12));
}

TEST(Rules, ClipTheGlobalNormOfTheGradient) {
  const Data from = data(torch::kDouble);
  Model theirs = net(from);
  torch::optim::SGD optimizer(theirs->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    theirs->loss(from.a, from.b).backward();
    torch::nn::utils::clip_grad_norm_(theirs->parameters(), 1.5);
    optimizer.step();
  }
  const auto got = with_lockstep(Sgd{.lr = 0.1}, from, 3, {.clip_norm = 1.5});
  for (size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(torch::allclose(got[p], theirs->parameters()[p], 1e-12, 1e-14));
}

TEST(Rules, RejectNumbersThatMakeNoSense) {
  const auto message = [](const char* text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  EXPECT_THAT([] { check(Sgd{.lr = -1}); }, message("sgd: lr is -1, expected a finite number of at least 0"));
  EXPECT_THAT([] { check(Adam{.beta2 = 1}); }, message("adam: beta2 is 1, expected"));
  EXPECT_THAT([] { check(Sgd{.nesterov = true}); }, message("nesterov with momentum 0"));
  EXPECT_THAT([] { check(Adam{.lr = NAN}); }, message("lr is nan"));
}

}  // namespace
}  // namespace lockstep::parallel
