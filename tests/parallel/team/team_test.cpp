// SPDX-License-Identifier: Apache-2.0
// R replicas against one device on the joined batch.
#include "lockstep/parallel/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"

namespace lockstep::parallel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)));
    fc = register_module("fc", torch::nn::Linear(4 * 36, 10));
  }
  Tensor forward(const Tensor& x) { return fc(torch::relu(conv(x)).flatten(1)); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Net);

struct Batch {
  Tensor inputs, targets;
};

Batch batch(int64_t examples, at::ScalarType dtype = torch::kDouble) {
  torch::manual_seed(examples);
  return {torch::randn({examples, 1, 8, 8}).to(dtype), torch::randint(10, {examples})};
}

Net make(at::ScalarType dtype = torch::kDouble) {
  torch::manual_seed(0);
  Net net;
  net->to(dtype);
  return net;
}

using Weights = std::vector<Tensor>;

Weights copy(const torch::nn::Module& net) {
  Weights out;
  for (const auto& parameter : net.parameters()) out.push_back(parameter.detach().clone().contiguous());
  return out;
}

void expect_close(const Weights& a, const Weights& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t p = 0; p < a.size(); ++p)
    EXPECT_TRUE(torch::allclose(a[p], b[p], tolerance, tolerance)) << (a[p] - b[p]).abs().max().item<double>();
}

void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t p = 0; p < a.size(); ++p) EXPECT_TRUE(torch::equal(a[p], b[p])) << "parameter " << p;
}

struct Trained {
  Weights weights;
  std::vector<double> losses;
};

// Trains on every batch in turn, each divided over the replicas.
Trained train(const Team& team, const Net& net, const std::vector<Batch>& batches, const Rule& rule,
              const OptimizerOptions& options = {}) {
  Trained out;
  std::mutex mutex;
  team.run([&](Replica& me) {
    auto mine = me.share(net);
    auto optimizer = me.optimizer(rule, options);
    std::vector<double> losses;
    for (const Batch& all : batches) {
      const auto inputs = me.share_of(all.inputs), targets = me.share_of(all.targets);
      Tensor loss;
      if (inputs.size(0) > 0) loss = torch::nn::functional::cross_entropy(mine->forward(inputs), targets);
      losses.push_back(me.step(loss, optimizer, static_cast<double>(inputs.size(0))).loss);
    }
    const std::lock_guard lock(mutex);
    if (me.number() == team.block().begin) out = {copy(*mine), losses};
  });
  return out;
}

Trained train_alone(const std::vector<Batch>& batches, double lr) {
  Net net = make();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(lr).momentum(0.9));
  Trained out;
  for (const Batch& all : batches) {
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(net->forward(all.inputs), all.targets);
    loss.backward();
    optimizer.step();
    out.losses.push_back(loss.item<double>());
  }
  out.weights = copy(*net);
  return out;
}

TEST(Team, GivesWhatOneDeviceGivesOnTheJoinedBatch) {
  // A tail with fewer examples than replicas, too.
  const std::vector<Batch> batches{batch(24), batch(13), batch(3), batch(24)};
  const auto expected = train_alone(batches, 0.1);
  for (const int64_t replicas : {1, 2, 3, 8})
    for (const char* devices : {"cpu:1", "cpu:2", "cpu:8"}) {
      SCOPED_TRACE(text(replicas, " replicas on ", devices));
      const auto got = train(Team::create({.replicas = replicas, .devices = devices}), make(), batches,
                             Sgd{.lr = 0.1, .momentum = 0.9});
      expect_close(got.weights, expected.weights, 1e-12);
      for (size_t s = 0; s < batches.size(); ++s) EXPECT_NEAR(got.losses[s], expected.losses[s], 1e-12);
    }
}

TEST(Team, SumsWhatReplicasAddToAStep) {
  Team::create({.replicas = 8, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(make());
    auto optimizer = me.optimizer(Sgd{.lr = 0.1});
    const StepSum numbers = me.step_sum(optimizer, "numbers"), halves = me.step_sum(optimizer, "halves");
    const Batch all = batch(24);
    for (int64_t step = 0; step < 2; ++step) {
      me.add(optimizer, numbers, static_cast<double>(me.number()));
      me.add(optimizer, numbers, torch::ones({1}, torch::kLong));
      if (step == 1 && me.number() == 5) me.add(optimizer, halves, 0.5);
      const auto loss =
          torch::nn::functional::cross_entropy(net->forward(me.share_of(all.inputs)), me.share_of(all.targets));
      const StepResult result = me.step(loss, optimizer, 3);
      EXPECT_EQ(result.sum(numbers), 28 + 8);
      EXPECT_EQ(result.sum(halves), step == 1 ? 0.5 : 0);
    }
  });
}

TEST(Team, RefusesSumsThatReplicasNameDifferentlyOrTwice) {
  const auto register_sums = [](const std::function<std::string(int64_t, int)>& name) {
    return [name] {
      Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) {
        auto net = me.share(make());
        auto optimizer = me.optimizer(Sgd{.lr = 0.1});
        for (int i = 0; i < 2; ++i) me.step_sum(optimizer, name(me.number(), i));
      });
    };
  };
  EXPECT_THAT(register_sums([](int64_t replica, int i) { return text(replica, i); }),
              ThrowsMessage<ReplicaError>(HasSubstr("expected the same on all")));
  EXPECT_THAT(register_sums([](int64_t, int) { return "right"; }),
              ThrowsMessage<ReplicaError>(HasSubstr("the optimiser has a sum 'right' already")));
}

TEST(Team, GivesTheSameBitsOnAnyNumberOfThreads) {
  std::vector<Batch> batches;
  for (int64_t s = 0; s < 6; ++s) batches.push_back(batch(30 + s, torch::kFloat));
  const auto run = [&](const char* devices, const Rule& rule, const OptimizerOptions& options) {
    return train(Team::create({.replicas = 8, .devices = devices}), make(torch::kFloat), batches, rule, options);
  };
  for (const auto& options : {OptimizerOptions{}, OptimizerOptions{.clip_norm = 0.5, .clip_value = 0.1}})
    for (const Rule& rule : {Rule(Sgd{.lr = 0.1, .momentum = 0.9}), Rule(Adam{.lr = 0.01}), Rule(Lamb{.lr = 0.01})}) {
      SCOPED_TRACE(name_of(rule));
      const auto one = run("cpu:1", rule, options);
      for (const char* devices : {"cpu:2", "cpu:3", "cpu:8"}) {
        const auto other = run(devices, rule, options);
        expect_equal(other.weights, one.weights);
        EXPECT_EQ(other.losses, one.losses);
      }
    }
}

TEST(Team, AccumulatesOverMicroSteps) {
  const std::vector<Batch> batches{batch(16), batch(16)};
  const auto expected = train_alone(batches, 0.1);
  const Net made = make();
  Weights got;
  Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(made);
    auto optimizer = me.optimizer(Sgd{.lr = 0.1, .momentum = 0.9});
    for (const Batch& all : batches) {
      const auto inputs = me.share_of(all.inputs), targets = me.share_of(all.targets);
      const auto loss = [&](int64_t begin, int64_t end) {
        return torch::nn::functional::cross_entropy(net->forward(inputs.slice(0, begin, end)),
                                                    targets.slice(0, begin, end));
      };
      me.backward(loss(0, 3), optimizer, 3);
      me.backward(loss(3, 5), optimizer, 2);
      EXPECT_TRUE(net->fc->weight.grad().defined());
      me.step(loss(5, 8), optimizer, 3);
      EXPECT_FALSE(net->fc->weight.grad().defined());
    }
    if (me.number() == 0) got = copy(*net);
  });
  expect_close(got, expected.weights, 1e-12);
}

TEST(Team, SharesOneStorageOfWeightsAndNoGradients) {
  std::vector<const void*> weights(4), modules(4);
  Team::create({.replicas = 4, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(Net());
    weights[me.number()] = net->fc->weight.const_data_ptr();
    modules[me.number()] = net.get();
    EXPECT_TRUE(net->fc->weight.is_leaf());
    me.barrier();
    net->fc->weight.sum().backward();
    me.barrier();
    EXPECT_EQ(net->fc->weight.grad().sum().item<double>(), 1440);
  });
  for (int64_t r = 1; r < 4; ++r) {
    EXPECT_EQ(weights[r], weights[0]);
    EXPECT_NE(modules[r], modules[0]);
  }
}

TEST(Team, MakesTheReplicasNetworksFromItsSeed) {
  const auto weights = [](uint64_t seed) {
    std::vector<Weights> out(3);
    Team::create({.replicas = 3, .devices = "cpu:2", .seed = seed}).run([&](Replica& me) {
      const Net mine;
      out[me.number()] = copy(*mine);
      me.share(mine);
    });
    expect_equal(out[1], out[0]);
    expect_equal(out[2], out[0]);
    return out[0];
  };
  const auto first = weights(1);
  expect_equal(weights(1), first);
  EXPECT_FALSE(torch::equal(weights(2)[0], first[0]));
}

TEST(Team, LeavesParametersAloneThatNoReplicaUsed) {
  struct TwoImpl : torch::nn::Cloneable<TwoImpl> {
    TwoImpl() { reset(); }
    void reset() override {
      a = register_module("a", torch::nn::Linear(3, 3));
      b = register_module("b", torch::nn::Linear(3, 3));
      frozen = register_parameter("frozen", torch::ones({3}), false);
    }
    torch::nn::Linear a{nullptr}, b{nullptr};
    Tensor frozen;
  };
  Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(std::make_shared<TwoImpl>());
    const auto before = copy(*net);
    auto optimizer = me.optimizer(Adam{.lr = 0.1, .weight_decay = 0.1});
    const auto x = torch::ones({1, 3});
    me.step(net->a(x).sum(), optimizer);
    EXPECT_FALSE(torch::equal(net->a->weight, before[1]));
    EXPECT_TRUE(torch::equal(net->b->weight, before[3]));
    EXPECT_TRUE(torch::equal(net->frozen, before[0]));
    // Used by one replica: it counts, with half the weight.
    me.step(me.number() == 0 ? net->b(x).sum() : net->a(x).sum(), optimizer);
    EXPECT_FALSE(torch::equal(net->b->weight, before[3]));
    me.barrier();
    EXPECT_TRUE(torch::equal(net->frozen, before[0]));
  });
}

TEST(Team, KeepsTiedWeightsTied) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() : weight(register_parameter("in", torch::eye(4, torch::kDouble))) { register_parameter("out", weight); }
    Tensor forward(const Tensor& x) { return torch::tanh(x.matmul(weight)).matmul(weight.t()); }
    Tensor weight;
  };
  const auto x = torch::randn({6, 4}, torch::kDouble);
  TiedImpl alone;
  torch::optim::SGD sgd({alone.weight}, torch::optim::SGDOptions(0.1));
  alone.forward(x).square().mean().backward();
  sgd.step();
  Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(std::make_shared<TiedImpl>());
    auto optimizer = me.optimizer(Sgd{.lr = 0.1});
    me.step(net->forward(me.share_of(x)).square().mean(), optimizer);
    EXPECT_TRUE(net->named_parameters()["in"].is_same(net->named_parameters()["out"]));
    EXPECT_TRUE(torch::allclose(net->weight, alone.weight, 1e-12, 1e-12));
  });
}

TEST(Team, EvaluatesEachExampleOnce) {
  for (const int64_t examples : {1, 7, 100}) {
    Team::create({.replicas = 3, .devices = "cpu:2"}).run([&](Replica& me) {
      auto net = me.share(make());
      const auto ids = torch::arange(examples, torch::kDouble);
      const auto sums = me.evaluate(examples, 4, [&](Interval interval) {
        EXPECT_FALSE(net->is_training());
        EXPECT_FALSE(torch::GradMode::is_enabled());
        EXPECT_LE(interval.size(), 4);
        const auto mine = ids.slice(0, interval.begin, interval.end);
        return torch::stack({mine.sum(), torch::scalar_tensor(interval.size(), torch::kDouble)});
      });
      EXPECT_TRUE(net->is_training());
      EXPECT_EQ(sums[0].item<double>(), examples * (examples - 1) / 2.0);
      EXPECT_EQ(sums[1].item<double>(), examples);
    });
  }
}

TEST(Team, LeavesOutStepsWhoseGradientsAreNotFinite) {
  Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) {
    auto net = me.share(torch::nn::Linear(2, 1));
    auto optimizer = me.optimizer(Sgd{.lr = 0.1}, {.initial_scale = 1024, .growth_interval = 2});
    const auto before = copy(*net);
    auto x = torch::ones({1, 2});
    if (me.number() == 1) x = x * INFINITY;
    EXPECT_FALSE(me.step(net(x).sum(), optimizer).updated);
    EXPECT_TRUE(torch::equal(net->weight, before[0]));
    EXPECT_EQ(optimizer.loss_scale(), 512);
    EXPECT_EQ(optimizer.steps(), 0);
    for (int step = 0; step < 2; ++step) EXPECT_TRUE(me.step(net(torch::ones({1, 2})).sum(), optimizer).updated);
    EXPECT_EQ(optimizer.loss_scale(), 1024);
    EXPECT_TRUE(torch::allclose(net->weight, before[0] - 0.2));
  });
}

TEST(Team, ResumesFromItsState) {
  std::vector<Batch> batches;
  for (int64_t s = 0; s < 6; ++s) batches.push_back(batch(20, torch::kFloat));
  const auto whole =
      train(Team::create({.replicas = 4, .devices = "cpu:2"}), make(torch::kFloat), batches, Adam{.lr = 0.01});
  std::map<std::string, Tensor> state;
  const Net made = make(torch::kFloat);
  Weights middle;
  const auto part = [&](Replica& me, Net& net, Optimizer& optimizer, size_t begin, size_t end) {
    for (size_t s = begin; s < end; ++s)
      me.step(torch::nn::functional::cross_entropy(net->forward(me.share_of(batches[s].inputs)),
                                                   me.share_of(batches[s].targets)),
              optimizer, 5);
  };
  Team::create({.replicas = 4, .devices = "cpu:1"}).run([&](Replica& me) {
    auto net = me.share(made);
    auto optimizer = me.optimizer(Adam{.lr = 0.01});
    part(me, net, optimizer, 0, 3);
    if (me.number() == 0) {
      state = optimizer.state_dict();
      middle = copy(*net);
    }
    me.barrier();
  });
  for (const bool all_load : {false, true}) {
    SCOPED_TRACE(all_load);
    Weights got;
    const Net saved = make(torch::kFloat);
    {
      const torch::NoGradGuard no_grad;
      for (size_t p = 0; p < middle.size(); ++p) saved->parameters()[p].copy_(middle[p]);
    }
    Team::create({.replicas = 4, .devices = "cpu:4"}).run([&](Replica& me) {
      auto net = me.share(saved);
      auto optimizer = me.optimizer(Adam{.lr = 0.01});
      if (all_load || me.number() == 0) optimizer.load_state_dict(state);
      me.barrier();
      part(me, net, optimizer, 3, 6);
      if (me.number() == 0) got = copy(*net);
    });
    expect_equal(got, whole.weights);
  }
}

}  // namespace
}  // namespace lockstep::parallel
