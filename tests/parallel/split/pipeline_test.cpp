// SPDX-License-Identifier: Apache-2.0
// A network that threads divide ends in the bits of one that they do not, and no wait is for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <atomic>

#include "lockstep/context/stages.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/parallel/team.h"
#include "support/error_of.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using test::expect_equal;
using test::State;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;
namespace nn = torch::nn;

constexpr int64_t kWidth = 12;

/// Dropout, weights that the first and the last part share, a norm, a frozen layer, and a skip connection whose tensor
/// three layers of two parts use.
struct KnottyImpl : nn::Cloneable<KnottyImpl>, Staged {
  KnottyImpl() { reset(); }
  void reset() override {
    tied = register_module("tied", nn::Linear(kWidth, kWidth));
    frozen = register_module("frozen", nn::Linear(kWidth, kWidth));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    middle = register_module("middle", nn::Linear(kWidth, kWidth));
    norm = register_module("norm", nn::BatchNorm1d(kWidth));
    dropout = register_module("dropout", nn::Dropout(0.3));
  }
  std::vector<Stage> stages() override {
    return {{"in",
             [this](Bundle& b) {
               const Tensor y = torch::relu(tied(b.get<Tensor>()));
               b.put("skip", y);
               b.put(y * 2 + y.square());
             }},
            {"frozen", [this](const Tensor& x) { return frozen(x); }},
            {"middle",
             [this](Bundle& b) {
               const Tensor skip = b.get<Tensor>("skip");
               b.put(dropout(middle(b.get<Tensor>() + skip)) + skip.sin());
             }},
            {"norm", [this](const Tensor& x) { return x.size(0) > 1 ? norm(x) : x; }},
            {"out", [this](Bundle& b) { b.put(tied(dropout(b.get<Tensor>())) + b.take<Tensor>("skip")); }}};
  }
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x); }

  nn::Linear tied{nullptr}, frozen{nullptr}, middle{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Knotty);

nn::Sequential make_sequence() {
  return nn::Sequential(nn::Linear(kWidth, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 8),
                        nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, kWidth));
}

enum class Norms { own, ghost, synchronised };

struct Recipe {
  int64_t replicas = 8;
  int64_t examples = 37;
  Norms norms = Norms::own;
  OptimizerOptions optimizer = {};
  Rule rule = AdamW{.lr = 0.01};
  int64_t accumulate = 1;
  uint64_t seed = 5;
  bool passes_twice = false;  // in one loss
};

template <class Network>
State train(const Network& made, Replica& me, const Recipe& recipe) {
  if (recipe.norms != Norms::own)
    norm::convert_sync_batchnorm(
        made, recipe.norms == Norms::ghost ? norm::BatchNormMode::ghost : norm::BatchNormMode::synchronised);
  auto network = me.share(made);
  auto optimizer = me.optimizer(recipe.rule, recipe.optimizer);
  for (uint64_t step = 0; step < 4; ++step) {
    for (int64_t part = 0; part < recipe.accumulate; ++part) {
      const auto key = RandomKey{step}.fold(static_cast<uint64_t>(part));
      const Tensor x = me.share_of(normal_(torch::empty({recipe.examples, kWidth}), key));
      const Tensor y = network->forward(x);
      Tensor loss = x.size(0) > 0 ? (y - x).square().mean() : y.sum();
      if (recipe.passes_twice) loss = loss + network->forward(x.neg()).square().sum();
      me.backward(loss, optimizer, static_cast<double>(x.size(0)));
    }
    me.step(optimizer);
  }
  const Tensor sums = me.evaluate(recipe.examples, 3, [&](Interval part) {
    return network->forward(torch::ones({part.size(), kWidth})).sum().to(torch::kDouble).view({1});
  });
  State state = test::state_of(me, *network, optimizer);
  state["evaluation"] = sums;
  return state;
}

struct DividedOver {
  const char* devices;
  int64_t parts;
};
constexpr DividedOver kSplits[] = {{"cpu:1", 2}, {"cpu:2", 2}, {"cpu:4", 2}, {"cpu:3", 2},
                                   {"cpu:3", 3}, {"cpu:5", 5}, {"cpu:2", 4}};

TeamOptions options_of(const Recipe& recipe, int64_t parts) {
  return {.replicas = recipe.replicas, .seed = recipe.seed, .split = {.parts = parts}};
}

template <class Make>
void expect_the_same_bits(const Recipe& recipe, const Make& make) {
  const auto body = [&](Replica& me) { return train(make(), me, recipe); };
  const State whole = test::run_placed({1, "cpu:2"}, options_of(recipe, 1), body);
  ASSERT_FALSE(whole.empty());
  for (const DividedOver& split : kSplits) {
    SCOPED_TRACE(testing::Message() << split.devices << " in " << split.parts << " parts");
    expect_equal(test::run_placed({1, split.devices}, options_of(recipe, split.parts), body), whole);
  }
}

TEST(Pipeline, EndsInTheBitsOfUndividedNetworks) {
  expect_the_same_bits({}, [] { return Knotty(); });
}

TEST(Pipeline, DividesASequenceWithoutBeingAsked) {
  for (const Norms norms : {Norms::ghost, Norms::synchronised}) expect_the_same_bits({.norms = norms}, make_sequence);
}

TEST(Pipeline, TakesALossOfTwoPasses) {
  expect_the_same_bits({.accumulate = 2, .passes_twice = true}, [] { return Knotty(); });
}

TEST(Pipeline, TakesEmptySharesAndSingleExamples) {
  expect_the_same_bits({.examples = 3, .norms = Norms::ghost}, [] { return Knotty(); });
  expect_the_same_bits({.replicas = 3, .examples = 7, .norms = Norms::synchronised}, [] { return Knotty(); });
  expect_the_same_bits({.replicas = 1, .examples = 5}, [] { return Knotty(); });
}

TEST(Pipeline, AccumulatesClipsAndScales) {
  expect_the_same_bits({.norms = Norms::ghost, .optimizer = {.clip_norm = 0.5}, .rule = Lamb{}, .accumulate = 3},
                       [] { return Knotty(); });
  expect_the_same_bits(
      {.optimizer = {.initial_scale = 1024, .wire = RoundedWire{}}, .rule = Sgd{.lr = 0.1}, .accumulate = 2},
      [] { return Knotty(); });
}

TEST(Pipeline, IsDividedInEachOfSeveralProcesses) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  const Recipe recipe{.norms = Norms::ghost};
  const auto body = [&](Replica& me) { return train(Knotty(), me, recipe); };
  const State whole = test::run_placed({1, "cpu:2"}, options_of(recipe, 1), body);
  expect_equal(test::run_placed({2, "cpu:2"}, options_of(recipe, 2), body), whole);
  expect_equal(test::run_placed({2, "cpu:3", {5, 3}}, options_of(recipe, 3), body), whole);
}

/// Counts the replicas that have begun their pass and have not computed the gradient of the first layer yet.
struct CountedImpl : nn::Cloneable<CountedImpl>, Staged {
  explicit CountedImpl(std::atomic<int>* live, std::atomic<int>* most) : live(live), most(most) { reset(); }
  void reset() override {
    for (size_t l = 0; l < layers.size(); ++l) layers[l] = register_module(std::to_string(l), nn::Linear(64, 64));
  }
  std::vector<Stage> stages() override {
    std::vector<Stage> all;
    for (size_t l = 0; l < layers.size(); ++l)
      all.emplace_back(std::to_string(l), [this, l](const Tensor& x) {
        if (l > 0) return layers[l](x);
        const int now = ++*live;
        for (int known = *most; known < now && !most->compare_exchange_weak(known, now);) continue;
        Tensor y = layers[0](x);
        y.register_hook([live = live](const Tensor&) { --*live; });
        return y;
      });
    return all;
  }
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x); }
  std::array<nn::Linear, 4> layers{nullptr, nullptr, nullptr, nullptr};
  std::atomic<int>*live, *most;
};

TEST(Pipeline, HasNoMoreReplicasInFlightThanParts) {
  for (const int64_t parts : {2, 3}) {
    std::atomic<int> live = 0, most = 0;
    const std::string devices = "cpu:" + std::to_string(parts);
    Team::create({.replicas = 8, .devices = devices, .split = {.parts = parts}}).run([&](Replica& me) {
      auto network = me.share(std::make_shared<CountedImpl>(&live, &most));
      auto optimizer = me.optimizer(Sgd{.lr = 0.1});
      for (int step = 0; step < 5; ++step) {
        me.step(network->forward(torch::ones({16, 64})).square().mean(), optimizer, 16);
        if (step == 0 && me.number() == 0) most = 0;  // the first one is measured, whole
        me.barrier();
      }
    });
    EXPECT_EQ(live, 0);
    EXPECT_GE(most, 1);
    EXPECT_LE(most, parts);
  }
}

TEST(Pipeline, AFailureAnywhereEndsItForAll) {
  for (const bool backwards : {false, true}) {
    const auto team = Team::create({.replicas = 6, .devices = "cpu:3", .split = {.parts = 3}});
    const auto body = [&](Replica& me) {
      auto network = me.share(make_sequence());
      auto optimizer = me.optimizer(Sgd{.lr = 0.1});
      for (int step = 0;; ++step) {
        const bool fails = step == 2 && me.number() == 4;
        Tensor y = network->forward(torch::ones({4, kWidth}));
        if (fails && !backwards) throw std::runtime_error("no more cheese");
        if (fails) y.register_hook([](const Tensor&) -> void { throw std::runtime_error("no more cheese"); });
        me.step(y.square().mean(), optimizer, 4);
      }
    };
    EXPECT_THAT([&] { team.run(body); }, ThrowsMessage<ReplicaError>(HasSubstr("replica 4: no more cheese")));
  }
}

TEST(Pipeline, AReplicaThatReturnsEarlyIsAnError) {
  const auto team = Team::create({.replicas = 4, .devices = "cpu:2", .split = {.parts = 2}});
  EXPECT_THAT(
      [&] {
        team.run([](Replica& me) {
          auto network = me.share(make_sequence());
          auto optimizer = me.optimizer(Sgd{.lr = 0.1});
          for (int step = 0; step < 3; ++step) {
            const Tensor loss = network->forward(torch::ones({4, kWidth})).square().mean();
            if (step == 2 && me.number() == 1) return;  // in flight
            me.step(loss, optimizer, 4);
          }
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("1 replica has returned while others wait in this call")));
}

/// It has stages, and goes another way.
struct AsideImpl : KnottyImpl {
  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method)
  Tensor forward(const Tensor& x) { return tied(x); }
};

/// A residual block that is cut open: what is added at its end goes there by a member.
struct OpenBlockImpl : nn::Cloneable<OpenBlockImpl>, Staged {
  OpenBlockImpl() { reset(); }
  void reset() override { inner = register_module("inner", nn::Linear(kWidth, kWidth)); }
  std::vector<Stage> stages() override {
    return {{"first half", [this](const Tensor& x) { return torch::relu(kept = inner(x)); }},
            {"second half", [this](const Tensor& x) { return inner(x) + kept; }}};
  }
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x); }

  nn::Linear inner{nullptr};
  Tensor kept;
};

TEST(Pipeline, RefusesWhatItCanNotDivide) {
  const auto error = [](int64_t parts, const std::function<void(Replica&)>& body) {
    try {
      Team::create({.replicas = 2, .devices = "cpu:2", .split = {.parts = parts}}).run(body);
    } catch (const ReplicaError& failed) {
      return std::string(failed.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error(2, [](Replica& me) { me.share(nn::Linear(3, 3)); }),
              AllOf(HasSubstr("torch::nn::LinearImpl has no stages"),
                    HasSubstr("lockstep::fold<at::Tensor>(stages(), x)"), HasSubstr("--split data")));
  EXPECT_THAT(error(6, [](Replica& me) { me.share(Knotty()); }),
              HasSubstr("has 5 stages, expected 6 at least for split p6"));
  EXPECT_THAT(error(2,
                    [](Replica& me) {
                      me.share(Knotty());
                      me.share(Knotty());
                    }),
              HasSubstr("a second network was shared, and split p2 divides one"));
  EXPECT_THAT(error(2,
                    [](Replica& me) {
                      auto network = me.share(std::make_shared<AsideImpl>());
                      auto optimizer = me.optimizer(Sgd{.lr = 0.1});
                      me.step(network->forward(torch::ones({2, kWidth})).sum(), optimizer, 2);
                    }),
              HasSubstr("has gone through none of its stages"));
  EXPECT_THAT(error(2,
                    [](Replica& me) {
                      auto network = me.share(std::make_shared<OpenBlockImpl>());
                      network->forward(torch::ones({2, kWidth}));
                    }),
              HasSubstr("stage 'second half' uses a tensor that a stage before it has and that is not in its bundle"));
  EXPECT_THAT(test::error_of([] {
                Team::create({.replicas = 2, .devices = "cpu:2", .shares_backward = true, .split = {.parts = 2}});
              }),
              HasSubstr("shares_backward joins them"));
}

}  // namespace
}  // namespace lockstep::parallel
