// SPDX-License-Identifier: Apache-2.0
// An optimiser's state divided over processes: the same bits, the same checkpoints, a part of the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using lockstep::test::Placed;
using lockstep::test::State;
using ::testing::HasSubstr;
using torch::Tensor;

struct DividedRecipe {
  Rule rule;
  OptimizerOptions options = {};
};

// LeNet, its last layer with another rule: two groups, tensors of many sizes, pieces that do not fall on processes.
State train_divided(Replica& me, const DividedRecipe& recipe, int64_t begin, int64_t end, const State& from = {}) {
  const auto task = lockstep::test::make_task("lenet");
  const auto made = task->network();
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : made->named_parameters())
      if (!from.empty()) item.value().copy_(from.at("weight." + item.key()));
  }
  const auto network = me.share(made);
  std::vector<Tensor> first, last;
  for (const auto& item : network->named_parameters())
    (item.key().starts_with("fc2") ? last : first).push_back(item.value());
  auto optimizer = me.optimizer({{first, recipe.rule}, {last, Sgd{.lr = 0.01, .momentum = 0.9}}}, recipe.options);
  if (!from.empty()) {
    State state;
    for (const auto& [name, tensor] : from)
      if (name.starts_with("optimizer.")) state[name.substr(10)] = tensor;
    optimizer.load_state_dict(state);
    me.barrier();
    me.set_steps(begin);
  }
  for (int64_t step = begin; step < end; ++step) {
    const auto [inputs, targets] = task->batch(step);
    const auto x = me.share_of(inputs);
    me.step(task->loss(*network, x, me.share_of(targets)), optimizer, static_cast<double>(x.size(0)));
  }
  me.watch_divergence(optimizer);
  return lockstep::test::state_of(me, *network, optimizer);
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const TeamOptions kTeam{.replicas = 6, .seed = 5};
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const std::vector<Placed> kPlaced{{2, "cpu:1"}, {3, "cpu:2", {1, 3, 2}}};

class DividedState : public ::testing::TestWithParam<Rule> {
 protected:
  void SetUp() override {
    pin_numerics();
    if (!lockstep::test::run_ranks(2, [](const comm::Group&) {}))
      GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  }
};
INSTANTIATE_TEST_SUITE_P(, DividedState,
                         ::testing::Values(Sgd{.lr = 0.1, .momentum = 0.9}, Adam{.lr = 1e-3, .amsgrad = true}, AdamW{},
                                           RmsProp{.momentum = 0.5, .centered = true}, Adagrad{}, Lars{.lr = 0.5},
                                           Lamb{.lr = 0.01}),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(DividedState, GivesTheBitsOfTheWhole) {
  for (const OptimizerOptions& options :
       {OptimizerOptions{}, OptimizerOptions{.clip_norm = 0.5, .initial_scale = 64}}) {
    const State expected = lockstep::test::run_placed({1, "cpu:2"}, kTeam, [&](Replica& me) {
      return train_divided(me, {GetParam(), options}, 0, 4);
    });
    OptimizerOptions divided = options;
    divided.divide_state = true;
    for (const Placed& placed : kPlaced) {
      SCOPED_TRACE(placed);
      lockstep::test::expect_equal(lockstep::test::run_placed(placed, kTeam,
                                                              [&](Replica& me) {
                                                                return train_divided(me, {GetParam(), divided}, 0, 4);
                                                              }),
                                   expected);
    }
  }
}

TEST_P(DividedState, ReadsAndWritesTheCheckpointsOfTheWhole) {
  const DividedRecipe whole{GetParam(), {}}, divided{GetParam(), {.divide_state = true}};
  const auto run = [&](const Placed& placed, const DividedRecipe& recipe, int64_t begin, int64_t end,
                       const State& from) {
    return lockstep::test::run_placed(placed, kTeam,
                                      [&](Replica& me) { return train_divided(me, recipe, begin, end, from); });
  };
  const State expected = run({1, "cpu:2"}, whole, 0, 4, {});
  const State middle = run(kPlaced[0], divided, 0, 2, {});
  lockstep::test::expect_equal(run({1, "cpu:2"}, whole, 2, 4, middle), expected);
  lockstep::test::expect_equal(run(kPlaced[1], divided, 2, 4, run({1, "cpu:1"}, whole, 0, 2, {})), expected);
}

TEST(DividedStateAndWires, GoTogether) {
  for (const Wire& wire : {Wire(RoundedWire{}), Wire(TopK{.share = 0.05}), Wire(PowerSgd{.rank = 2})}) {
    SCOPED_TRACE(to_string(wire));
    const State expected = lockstep::test::run_placed({1, "cpu:2"}, kTeam, [&](Replica& me) {
      return train_divided(me, {Adam{}, {.wire = wire}}, 0, 3);
    });
    if (!lockstep::test::run_ranks(2, [](const comm::Group&) {})) GTEST_SKIP() << "this build has no Gloo";
    lockstep::test::expect_equal(
        lockstep::test::run_placed({2, "cpu:1"}, kTeam,
                                   [&](Replica& me) {
                                     return train_divided(me, {Adam{}, {.wire = wire, .divide_state = true}}, 0, 3);
                                   }),
        expected);
  }
}

TEST(DividedStateErrors, SendTheCallerToTheCollectiveCall) {
  std::atomic<int> refused = 0;
  const bool ran = lockstep::test::run_ranks(2, [&](const comm::Group& group) {
    Team::create({.replicas = 2, .devices = "cpu:1", .group = group}).run([&](Replica& me) {
      auto net = me.share(torch::nn::Linear(4, 4));
      auto optimizer = me.optimizer(Adam{}, {.divide_state = true});
      me.step(net(torch::ones({1, 4})).sum(), optimizer);
      try {
        optimizer.state_dict();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("expected Replica::state_dict(optimizer), called by all replicas"));
        ++refused;
      }
      EXPECT_EQ(me.state_dict(optimizer).at("weight.exp_avg").sizes(), (std::vector<int64_t>{4, 4}));
    });
  });
  if (!ran) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace lockstep::parallel
