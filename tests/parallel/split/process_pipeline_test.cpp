// SPDX-License-Identifier: Apache-2.0
// A network whose parts are processes ends in the bits of one that a device has alone, and no part holds another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <barrier>
#include <mutex>
#include <span>

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
using torch::Tensor;
namespace nn = torch::nn;

constexpr int64_t kWidth = 12;

/// Dropout in every part, a frozen layer, norms, a skip that crosses two borders and is used on its way, a tensor under
/// two names, and one that is handed on transposed.
struct WovenImpl : nn::Cloneable<WovenImpl>, Staged {
  WovenImpl() { reset(); }
  void reset() override {
    in = register_module("in", nn::Linear(kWidth, kWidth));
    frozen = register_module("frozen", nn::Linear(kWidth, kWidth));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    middle = register_module("middle", nn::Linear(kWidth, kWidth));
    norm = register_module("norm", nn::BatchNorm1d(kWidth));
    out = register_module("out", nn::Linear(kWidth, kWidth));
    scale = register_parameter("scale", torch::ones({kWidth}));
    dropout = register_module("dropout", nn::Dropout(0.3));
  }
  std::vector<Stage> stages() override {
    return {{"in",
             [this](Bundle& b) {
               const Tensor y = dropout(torch::relu(in(b.get<Tensor>())));
               b.put("skip", y);
               b.put("again", y);
               b.put(y * 2 + y.square());
             }},
            {"frozen", [this](Bundle& b) { b.put((frozen(b.get<Tensor>()) + b.take<Tensor>("again")).t()); }},
            {"middle",
             [this](Bundle& b) {
               const Tensor skip = b.get<Tensor>("skip");
               b.put(dropout(middle(b.get<Tensor>().t() + skip)) + skip.sin());
             }},
            {"norm", [this](const Tensor& x) { return x.size(0) > 1 ? norm(x) : x; }},
            {"out", [this](Bundle& b) { b.put(out(dropout(b.get<Tensor>())) + b.take<Tensor>("skip")); }}};
  }
  // What comes behind the stages, every part computes.
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x) * scale; }

  nn::Linear in{nullptr}, frozen{nullptr}, middle{nullptr}, out{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout dropout{nullptr};
  Tensor scale;
};
TORCH_MODULE(Woven);

nn::Sequential make_sequence() {
  return nn::Sequential(nn::Linear(kWidth, 16), nn::BatchNorm1d(16), nn::ReLU(nn::ReLUOptions(true)), nn::Dropout(0.2),
                        nn::Linear(16, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, kWidth));
}

enum class Norms { own, ghost, synchronised };

struct Recipe {
  int64_t examples = 37;
  Norms norms = Norms::own;
  OptimizerOptions optimizer = {};
  Rule rule = AdamW{.lr = 0.01};
  int64_t accumulate = 1;
  int64_t slices = 1;
  bool passes_twice = false;  // in one loss
  bool only_looks = false;    // at times: a pass that none goes back through
};

template <class Network>
State train(const Network& made, Replica& me, const Recipe& recipe) {
  if (recipe.norms != Norms::own)
    norm::convert_sync_batchnorm(
        made, recipe.norms == Norms::ghost ? norm::BatchNormMode::ghost : norm::BatchNormMode::synchronised);
  auto network = me.share(made);
  auto optimizer = me.optimizer(recipe.rule, recipe.optimizer);
  State state;
  for (uint64_t step = 0; step < 4; ++step) {
    for (int64_t part = 0; part < recipe.accumulate; ++part) {
      const auto key = RandomKey{step}.fold(static_cast<uint64_t>(part));
      const Tensor x = me.share_of(normal_(torch::empty({recipe.examples, kWidth}), key));
      if (const uint64_t pass = step * recipe.accumulate + part; recipe.only_looks && pass % 3 == 0)
        state["look " + std::to_string(pass)] =
            network->forward(torch::ones({40 * static_cast<int64_t>(pass) + 2, kWidth})).detach();
      const Tensor y = network->forward(x);
      Tensor loss = x.size(0) > 0 ? (y - x).square().mean() : y.sum();
      if (recipe.passes_twice) loss = loss + network->forward(x.neg()).square().sum();
      me.backward(loss, optimizer, static_cast<double>(x.size(0)));
    }
    const StepResult result = me.step(optimizer);
    state["loss " + std::to_string(step)] = torch::tensor({result.loss, result.gradient_norm}, torch::kDouble);
  }
  state["evaluation"] = me.evaluate(recipe.examples, 3, [&](Interval part) {
    return network->forward(torch::ones({part.size(), kWidth})).sum().to(torch::kDouble).view({1});
  });
  me.watch_divergence(optimizer, 0);
  state.merge(test::state_of(me, *network, optimizer));
  return state;
}

struct Grid {
  int ranks;
  const char* devices;
  int64_t parts, sharers = 1;
};
constexpr Grid kGrids[] = {{2, "cpu:1", 2}, {4, "cpu:1", 2}, {3, "cpu:2", 3}, {4, "cpu:1", 4}, {2, "cpu:2", 2, 2}};
template <class Make>
void expect_the_same_bits(const Recipe& recipe, const Make& make, std::span<const Grid> grids) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  const auto body = [&](Replica& me) { return train(make(), me, recipe); };
  const TeamOptions same{.replicas = 8, .seed = 5, .slices = recipe.slices};
  const State whole = test::run_placed({1, "cpu:2"}, same, body);
  ASSERT_FALSE(whole.empty());
  for (const Grid& grid : grids) {
    SCOPED_TRACE(testing::Message() << grid.ranks << " processes of " << grid.devices << ", " << grid.parts
                                    << " parts, " << grid.sharers << " sharers");
    TeamOptions divided = same;
    divided.split = {.parts = grid.parts, .sharers = grid.sharers};
    expect_equal(test::run_placed({grid.ranks, grid.devices}, divided, body), whole);
  }
}

TEST(ProcessPipeline, EndsInTheBitsOfOneDevice) {
  expect_the_same_bits(
      {}, [] { return Woven(); }, std::span(kGrids).first(4));
  expect_the_same_bits(
      {.slices = 2}, [] { return Woven(); }, kGrids);
}

TEST(ProcessPipeline, TakesALossOfTwoPasses) {
  expect_the_same_bits(
      {.accumulate = 2, .passes_twice = true}, [] { return Woven(); }, std::span(kGrids).first(1));
}

TEST(ProcessPipeline, TakesPassesThatNobodyGoesBackThrough) {
  expect_the_same_bits(
      {.accumulate = 3, .only_looks = true}, [] { return Woven(); }, std::span(kGrids).first(2));
}

TEST(ProcessPipeline, DividesASequenceWithoutBeingAsked) {
  for (const Norms norms : {Norms::ghost, Norms::synchronised})
    expect_the_same_bits({.norms = norms}, make_sequence, std::span(kGrids).first(2));
}

TEST(ProcessPipeline, TakesEmptySharesAndSingleExamples) {
  const auto two = std::span(kGrids).first(2);
  expect_the_same_bits(
      {.examples = 3, .norms = Norms::ghost}, [] { return Woven(); }, two);
  expect_the_same_bits(
      {.examples = 17, .norms = Norms::synchronised}, [] { return Woven(); }, two);
}

TEST(ProcessPipeline, AccumulatesClipsAndScales) {
  const auto two = std::span(kGrids).first(2);
  expect_the_same_bits(
      {.norms = Norms::ghost, .optimizer = {.clip_norm = 0.5}, .rule = Lamb{}, .accumulate = 3}, [] { return Woven(); },
      two);
  expect_the_same_bits(
      {.optimizer = {.initial_scale = 1024, .wire = RoundedWire{}}, .rule = Sgd{.lr = 0.1}, .accumulate = 2},
      [] { return Woven(); }, two);
}

TEST(ProcessPipeline, APartHoldsNoOtherPartsWeights) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  test::run_ranks(2, [](const comm::Group& group) {
    Team::create({.replicas = 4, .devices = "cpu:1", .group = group, .split = {.parts = 2}}).run([&](Replica& me) {
      auto network = me.share(nn::Sequential(nn::Linear(kWidth, 64), nn::Linear(64, kWidth)));
      auto optimizer = me.optimizer(AdamW{});
      const auto parameters = network->parameters();
      ASSERT_EQ(parameters.size(), 4);
      for (const Tensor& parameter : parameters) EXPECT_EQ(parameter.storage().data(), nullptr);
      me.barrier();
      for (int step = 0; step < 2; ++step) {
        const Tensor y = network->forward(torch::ones({2, kWidth}));
        for (size_t p = 0; step == 0 && p < parameters.size(); ++p)
          EXPECT_EQ(parameters[p].storage().data() != nullptr, static_cast<int>(p / 2) == group.rank()) << p;
        me.step(y.square().mean(), optimizer, 2);
        me.barrier();
      }
      for (size_t p = 0; p < parameters.size(); ++p) {
        const bool is_mine = static_cast<int>(p / 2) == group.rank();
        EXPECT_EQ(parameters[p].isnan().any().item<bool>(), !is_mine) << p;
        EXPECT_EQ(parameters[p].storage().nbytes() > sizeof(float), is_mine) << p;
      }
      const auto state = me.state_dict(optimizer, me.number() == 1);
      EXPECT_EQ(state.empty(), me.number() != 1);
      EXPECT_EQ(state.contains("0.weight.exp_avg") && state.contains("1.bias.exp_avg"), me.number() == 1);
      EXPECT_THAT(test::error_of([&] { (void)optimizer.state_dict(); }), HasSubstr("in other processes (split p2)"));
    });
  });
}

TEST(ProcessPipeline, AStateGoesOnInAnotherDivision) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  State half;
  const auto train_from = [&](Replica& me, int from, int to) {
    auto made = Woven();
    norm::convert_sync_batchnorm(made, norm::BatchNormMode::ghost);
    const torch::NoGradGuard no_grad;
    if (from > 0) {
      for (auto& item : made->named_parameters()) item.value().copy_(half.at("weight." + item.key()));
      for (auto& item : made->named_buffers()) item.value().copy_(half.at("buffer." + item.key()));
    }
    auto network = me.share(made);
    auto optimizer = me.optimizer(AdamW{.lr = 0.01});
    if (from > 0 && me.number() == 0) {
      std::map<std::string, Tensor> saved;
      for (const auto& [name, tensor] : half)
        if (name.starts_with("optimizer.")) saved[name.substr(10)] = tensor;
      optimizer.load_state_dict(saved);
    }
    me.set_steps(from);
    me.barrier();
    for (int step = from; step < to; ++step) {
      const torch::AutoGradMode with_grad(true);
      const Tensor x = me.share_of(normal_(torch::empty({37, kWidth}), RandomKey{static_cast<uint64_t>(step)}));
      me.step((network->forward(x) - x).square().mean(), optimizer, static_cast<double>(x.size(0)));
    }
    return test::state_of(me, *network, optimizer);
  };
  const TeamOptions recipe{.replicas = 4, .seed = 3};
  TeamOptions divided = recipe;
  divided.split.parts = 2;
  const State whole = test::run_placed({1, "cpu:2"}, recipe, [&](Replica& me) { return train_from(me, 0, 4); });
  half = test::run_placed({2, "cpu:1"}, divided, [&](Replica& me) { return train_from(me, 0, 2); });
  const State before = half;
  expect_equal(test::run_placed({1, "cpu:2"}, recipe, [&](Replica& me) { return train_from(me, 2, 4); }), whole);
  half = test::run_placed({1, "cpu:1"}, recipe, [&](Replica& me) { return train_from(me, 0, 2); });
  expect_equal(half, before);
  divided.split.parts = 4;
  expect_equal(test::run_placed({4, "cpu:1"}, divided, [&](Replica& me) { return train_from(me, 2, 4); }), whole);
}

/// The first and the last stage share their weights.
struct TiedImpl : nn::Cloneable<TiedImpl>, Staged {
  TiedImpl() { reset(); }
  void reset() override { tied = register_module("tied", nn::Linear(kWidth, kWidth)); }
  std::vector<Stage> stages() override {
    return {{"in", [this](const Tensor& x) { return tied(x); }},
            {"middle", [](const Tensor& x) { return x.sin(); }},
            {"out", [this](const Tensor& x) { return tied(x); }}};
  }
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x); }
  nn::Linear tied{nullptr};
};

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

std::string error_on_two(const TeamOptions& options, const std::function<void(Replica&)>& body) {
  std::string message = "no error";
  std::mutex mutex;
  test::run_ranks(2, [&](const comm::Group& group) {
    TeamOptions mine = options;
    mine.group = group;
    mine.devices = "cpu:1";
    const std::string error = failure_of([&] { Team::create(mine).run(body); });
    const std::lock_guard lock(mutex);
    if (group.rank() == 0) message = error;
  });
  return message;
}

TEST(ProcessPipeline, AStateIsWholeBeforeTheFirstStep) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  const auto body = [](Replica& me) {
    auto network = me.share(make_sequence());
    auto optimizer = me.optimizer(AdamW{.lr = 0.01});
    auto loaded = me.state_dict(optimizer, me.number() == 0);
    for (const auto& [name, tensor] : loaded)
      if (tensor.dim() > 0) tensor.fill_(0.25);
    if (me.number() == 0) optimizer.load_state_dict(loaded);
    me.barrier();
    State state;
    for (const auto& [name, tensor] : test::state_of(me, *network, optimizer)) state[name] = tensor.clone();
    me.step(network->forward(torch::ones({2, kWidth})).sum(), optimizer, 2);
    for (const auto& [name, tensor] : test::state_of(me, *network, optimizer)) state[name + " later"] = tensor;
    return state;
  };
  const TeamOptions same{.replicas = 4, .seed = 5};
  TeamOptions divided = same;
  divided.split.parts = 2;
  expect_equal(test::run_placed({1, "cpu:1"}, same, body), test::run_placed({2, "cpu:1"}, divided, body));
}

TEST(ProcessPipeline, RefusesWhatItCanNotDivide) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TeamOptions two{.replicas = 2, .split = {.parts = 2}};
  const auto trains = [](const auto& make, const OptimizerOptions& options = {}) {
    return [=](Replica& me) {
      auto network = me.share(make());
      auto optimizer = me.optimizer(Sgd{.lr = 0.1}, options);
      me.step(network->forward(torch::ones({2, kWidth})).sum(), optimizer, 2);
    };
  };
  EXPECT_THAT(error_on_two(two, trains([] { return std::make_shared<TiedImpl>(); })),
              HasSubstr("can be divided over 1 processes, expected 2 for split p2: 'in' and 'out' share tied.weight"));
  EXPECT_THAT(error_on_two(two, trains(make_sequence, {.divide_state = true})), HasSubstr("divide_state would again"));
  EXPECT_THAT(error_on_two(two, trains(make_sequence, {.wire = TopK{}})), HasSubstr("expected none, bf16 or fp16"));
  EXPECT_THAT(error_on_two({.replicas = 2, .split = {.parts = 3}}, trains(make_sequence)),
              HasSubstr("split p3 on 2 processes, expected a number that 3 divides"));
  EXPECT_THAT(error_on_two({.replicas = 2, .slices = 2, .split = {.sharers = 2}}, trains(make_sequence)),
              HasSubstr("processes can't share the slices of a layer"));
}

TEST(ProcessPipeline, AFailureInOnePartEndsItForAll) {
  if (!test::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  std::array<std::string, 3> errors;
  std::barrier all_have_ended(3);  // rank 0 serves the store, where the others look who is to blame
  test::run_ranks(3, [&](const comm::Group& group) {
    errors[group.rank()] = failure_of([&] {
      Team::create({.replicas = 6, .devices = "cpu:1", .group = group, .split = {.parts = 3}}).run([&](Replica& me) {
        auto network = me.share(make_sequence());
        auto optimizer = me.optimizer(Sgd{.lr = 0.1});
        for (int step = 0;; ++step) {
          const Tensor y = network->forward(torch::ones({4, kWidth}));
          if (step == 2 && me.number() == 4 && group.rank() == 1) throw std::runtime_error("no more cheese");
          me.step(y.square().mean(), optimizer, 4);
        }
      });
    });
    all_have_ended.arrive_and_wait();
  });
  EXPECT_THAT(errors[1], HasSubstr("replica 4: no more cheese"));
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1"));
}

}  // namespace
}  // namespace lockstep::parallel
