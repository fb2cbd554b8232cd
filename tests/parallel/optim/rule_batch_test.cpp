// SPDX-License-Identifier: Apache-2.0
// Rules in batches, as GPUs compute them, by the kernels' own code on the CPU.
#include "parallel/optim/rules/rule_batch.h"

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "optim/without_gpu.h"
#include "parallel/optim/rules/rule_slice.h"
#include "parallel/optim/rules/sum_squares.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;

class RuleBatches : public testing::Test {
 protected:
  void SetUp() override {
    if (best_cpu_level() == CpuLevel::baseline)
      GTEST_SKIP() << "this CPU does not fuse a product and a sum, as GPUs do";
    test::launches = 0;
  }
  void TearDown() override { test::is_gpu = false; }
};

std::vector<Rule> rules() {
  return {Sgd{.lr = 0.1, .weight_decay = 1e-2},
          Sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 1e-2},
          Sgd{.lr = 0.1, .momentum = 0.9, .nesterov = true},
          Adam{.lr = 0.1, .weight_decay = 1e-2},
          Adam{.lr = 0.1, .amsgrad = true},
          AdamW{.lr = 0.1, .weight_decay = 0.1},
          RmsProp{.lr = 0.1, .weight_decay = 1e-2},
          RmsProp{.lr = 0.1, .momentum = 0.9, .centered = true},
          Adagrad{.lr = 0.1, .lr_decay = 0.1, .weight_decay = 1e-2},
          Lars{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-2},
          Lamb{.lr = 0.1, .weight_decay = 1e-2}};
}

// None, a chunk, one more than a chunk, several that end anywhere.
constexpr int64_t kSizes[] = {1, 0, 63, 4096, 4097, 20000};

std::vector<RuleSlice> slices(const Rule& rule, at::ScalarType dtype) {
  torch::manual_seed(2);
  std::vector<RuleSlice> out;
  for (const int64_t size : kSizes) {
    RuleSlice& slice = out.emplace_back();
    slice.weight = torch::randn({size}, dtype);
    slice.gradient = torch::randn({size}, dtype);
    // A mean of squares is no less than the square of the mean.
    for (size_t k = 0; k < state_names(rule).size(); ++k)
      slice.state[k] = torch::rand({size}, dtype).add_(k == 0 ? 1 : 0);
  }
  return out;
}

TEST_F(RuleBatches, HaveTheBitsOfOneTensorAfterTheOther) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (const Rule& rule : rules()) {
      auto expected = slices(rule, dtype), got = slices(rule, dtype);
      RuleBatch batch;
      for (auto& slice : got) slice.batch = &batch;
      for (int64_t step = 1; step <= 3; ++step) {
        const auto update = [&](size_t t) {
          return TensorUpdate{.number = step, .gradient_scale = 0.25, .is_matrix = t % 2 == 0, .ratio = 1.5};
        };
        for (size_t t = 0; t < got.size(); ++t) {
          expected[t].gradient.fill_(0.1 * static_cast<double>(step)).add_(expected[t].weight, 0.3);
          got[t].gradient.copy_(expected[t].gradient);
          prepare(rule, update(t), expected[t]);
          prepare(rule, update(t), got[t]);
        }
        batch.run();
        for (size_t t = 0; t < got.size(); ++t) {
          apply(rule, update(t), expected[t]);
          apply(rule, update(t), got[t]);
        }
        test::launches = 0;
        batch.run();
        EXPECT_EQ(test::launches, 1) << name_of(rule);
        batch.run();
        EXPECT_EQ(test::launches, 1) << "what was launched waits no longer";
      }
      for (size_t t = 0; t < got.size(); ++t) {
        EXPECT_TRUE(torch::equal(got[t].weight, expected[t].weight)) << name_of(rule) << ", tensor " << t;
        for (size_t k = 0; k < state_names(rule).size(); ++k)
          EXPECT_TRUE(torch::equal(got[t].state[k], expected[t].state[k])) << name_of(rule) << ", state " << k;
      }
    }
}

TEST_F(RuleBatches, HoldTheGradientsOfCallersWhoLetThemGo) {
  const Rule rule = Sgd{.lr = 1};
  const Tensor weight = torch::zeros({5000});
  RuleBatch batch;
  apply(rule, {}, {.weight = weight, .gradient = torch::ones({5000}), .state = {}, .batch = &batch});
  const Tensor other = torch::full({5000}, 7.f);  // takes the memory, if it was free
  batch.run();
  EXPECT_TRUE(weight.eq(-1).all().item<bool>());
}

TEST_F(RuleBatches, SumsOfSquaresDependOnTheTensorAlone) {
  torch::manual_seed(3);
  std::vector<Tensor> tensors;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const int64_t size : kSizes) tensors.push_back(torch::randn({size}).to(dtype));
  test::is_gpu = true;
  const std::vector<double> together = sums_of_squares(tensors);
  EXPECT_EQ(test::launches, 4) << "two for float32, two for all others";
  EXPECT_TRUE(sums_of_squares({}).empty());
  for (size_t t = 0; t < tensors.size(); ++t) {
    EXPECT_EQ(together[t], sums_of_squares({tensors[t]})[0]) << t;
    const double expected = tensors[t].to(torch::kDouble).square().sum().item<double>();
    EXPECT_NEAR(together[t], expected, 1e-13 * expected) << t;
  }
  test::is_gpu = false;
  for (size_t t = 0; t < tensors.size(); ++t)
    EXPECT_NEAR(together[t], sums_of_squares(tensors)[t], 1e-13 * together[t]) << "as the CPU's, " << t;
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    torch::manual_seed(4);
    matrix = register_parameter("matrix", torch::randn({301, 233}));
    bias = register_parameter("bias", torch::randn({37}));
    half = register_parameter("half", torch::randn({99}).to(torch::kBFloat16));
  }
  Tensor loss(int64_t replica) const {
    const auto a = static_cast<double>(replica + 1);
    return (matrix * a).sin().sum() + (bias * a).square().sum() + half.to(torch::kFloat).square().sum() * a;
  }
  Tensor matrix, bias, half;
};
TORCH_MODULE(Net);

std::vector<Tensor> train(const Rule& rule, const OptimizerOptions& options, int64_t replicas, bool on_gpu) {
  test::is_gpu = on_gpu;
  std::vector<Tensor> out;
  Team::create({.replicas = replicas, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(Net());
    auto optimizer = me.optimizer(rule, options);
    for (int step = 0; step < 3; ++step) me.step(net->loss(me.number()), optimizer);
    if (me.number() != 0) return;
    for (const auto& parameter : net->parameters()) out.push_back(parameter.detach().to(torch::kDouble));
  });
  test::is_gpu = false;
  return out;
}

// Where nothing follows from norms, whose sums have an order of their own on a GPU.
TEST_F(RuleBatches, ATeamsStepsHaveTheBitsOfThoseWithoutBatches) {
  for (const Rule& rule : {Rule(Sgd{.lr = 1e-3, .momentum = 0.9}), Rule(Adam{}), Rule(RmsProp{.lr = 1e-3})})
    for (const int64_t replicas : {1, 4})
      for (const OptimizerOptions& options : {OptimizerOptions{}, OptimizerOptions{.clip_value = 0.1}}) {
        const auto expected = train(rule, options, replicas, false);
        test::launches = 0;
        const auto got = train(rule, options, replicas, true);
        EXPECT_GT(test::launches, 0);
        for (size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(torch::equal(got[p], expected[p])) << name_of(rule) << p;
      }
}

TEST_F(RuleBatches, ATeamsStepsByNormsAgreeWithThoseWithoutBatches) {
  const OptimizerOptions clips{.clip_norm = 0.5}, scales{.initial_scale = 1024};
  for (const Rule& rule : {Rule(Lamb{}), Rule(Lars{.momentum = 0.9}), Rule(Adam{})})
    for (const int64_t replicas : {1, 4})
      for (const OptimizerOptions& options : {clips, scales}) {
        const auto expected = train(rule, options, replicas, false), got = train(rule, options, replicas, true);
        for (size_t p = 0; p < got.size(); ++p)
          EXPECT_TRUE(torch::allclose(got[p], expected[p], 1e-5, 1e-6)) << name_of(rule) << p;
      }
}

}  // namespace
}  // namespace lockstep::parallel
