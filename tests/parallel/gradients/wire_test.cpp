// SPDX-License-Identifier: Apache-2.0
// What replicas send each other of their gradients: the same bits in every placement, nothing lost for good, and the
// bytes that were promised.
#include "lockstep/parallel/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using lockstep::test::State;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

struct WireRecipe {
  Wire wire = {};
  Rule rule = Adam{.lr = 1e-3};
  OptimizerOptions options = {};
  int64_t steps = 5;
};

// LeNet on shares of 29 examples: uneven, so that replicas count with different weights.
State train_over(Replica& me, const WireRecipe& recipe, const State& from = {}, int64_t begin = 0) {
  const auto task = lockstep::test::make_task("lenet");
  const auto made = task->network();
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : made->named_parameters())
      if (!from.empty()) item.value().copy_(from.at("weight." + item.key()));
  }
  const auto network = me.share(made);
  OptimizerOptions options = recipe.options;
  options.wire = recipe.wire;
  auto optimizer = me.optimizer(recipe.rule, options);
  if (!from.empty()) {
    State state;
    for (const auto& [name, tensor] : from)
      if (name.starts_with("optimizer.")) state[name.substr(10)] = tensor;
    optimizer.load_state_dict(state);
    me.barrier();
    me.set_steps(begin);
  }
  for (int64_t step = begin; step < recipe.steps; ++step) {
    const auto [inputs, targets] = task->batch(step);
    const auto x = me.share_of(inputs);
    me.step(task->loss(*network, x, me.share_of(targets)), optimizer, static_cast<double>(x.size(0)));
  }
  return lockstep::test::state_of(me, *network, optimizer);
}

const Wire kWires[] = {RoundedWire{RoundedWire::Type::bf16}, RoundedWire{RoundedWire::Type::fp16}, TopK{.share = 0.05},
                       PowerSgd{.rank = 2}};

class EachWire : public ::testing::TestWithParam<Wire> {
 protected:
  EachWire() { pin_numerics(); }
};
INSTANTIATE_TEST_SUITE_P(, EachWire, ::testing::ValuesIn(kWires), [](const auto& info) {
  return std::string(to_string(info.param), 0, to_string(info.param).find(':'));
});

TEST_P(EachWire, GivesTheSameBitsInEveryPlacement) {
  lockstep::test::expect_same_everywhere({.replicas = 8, .seed = 3},
                                         [&](Replica& me) { return train_over(me, {.wire = GetParam()}); });
}

TEST_P(EachWire, GivesTheSameBitsWithClippingAndLossScaling) {
  const WireRecipe recipe{
      .wire = GetParam(),
      .rule = Sgd{.lr = 0.1, .momentum = 0.9},
      .options = {.clip_norm = 0.5, .clip_value = 0.1, .initial_scale = 1024, .growth_interval = 2}};
  lockstep::test::expect_same_everywhere({.replicas = 8, .seed = 3},
                                         [&](Replica& me) { return train_over(me, recipe); });
}

TEST_P(EachWire, GoesOnElsewhereAsIfNothingHadHappened) {
  const WireRecipe whole{.wire = GetParam(), .steps = 6};
  WireRecipe half = whole;
  half.steps = 3;
  const TeamOptions options{.replicas = 8, .seed = 3};
  const auto placements = lockstep::test::placements();
  const State expected =
      lockstep::test::run_placed(placements[0], options, [&](Replica& me) { return train_over(me, whole); });
  const State middle =
      lockstep::test::run_placed(placements.back(), options, [&](Replica& me) { return train_over(me, half); });
  const State end =
      lockstep::test::run_placed(placements[1], options, [&](Replica& me) { return train_over(me, whole, middle, 3); });
  lockstep::test::expect_equal(end, expected);
}

TEST_P(EachWire, IsNearWhatWholeGradientsGiveInOneStep) {
  const auto one_step = [](const Wire& wire) {
    return lockstep::test::run_placed({1, "cpu:2"}, {.replicas = 4, .seed = 3}, [&](Replica& me) {
      return train_over(me, {.wire = wire, .rule = Sgd{.lr = 1}, .steps = 1});
    });
  };
  const State start = lockstep::test::run_placed({1, "cpu:2"}, {.replicas = 4, .seed = 3},
                                                 [&](Replica& me) { return train_over(me, {.steps = 0}); });
  const State whole = one_step(ExactWire{}), sent = one_step(GetParam());
  double dot = 0, norm_whole = 0, norm_sent = 0;
  for (const auto& [name, tensor] : start) {
    if (!name.starts_with("weight.")) continue;
    const auto a = (whole.at(name) - tensor).to(at::kDouble), b = (sent.at(name) - tensor).to(at::kDouble);
    dot += (a * b).sum().item<double>();
    norm_whole += a.square().sum().item<double>();
    norm_sent += b.square().sum().item<double>();
  }
  EXPECT_GT(dot / std::sqrt(norm_whole * norm_sent), std::holds_alternative<RoundedWire>(GetParam()) ? 0.9999 : 0.5);
}

// A loss that is linear in the weights has the same gradient in each step: what was not sent must be in the residuals.
TEST(ErrorFeedback, LosesNothing) {
  for (const Wire& wire : {Wire(TopK{.share = 0.02}), Wire(PowerSgd{.rank = 1})}) {
    SCOPED_TRACE(to_string(wire));
    constexpr int kSteps = 7;
    constexpr int64_t kReplicas = 3;
    std::vector<Tensor> directions;  // not drawn inside run(), where a replica's numbers are its own
    for (int64_t r = 0; r < kReplicas; ++r) directions.push_back(torch::randn({24, 40}, torch::kDouble));
    std::map<std::string, Tensor> state;
    Tensor moved, sum = torch::zeros({24, 40}, torch::kDouble);
    for (int64_t r = 0; r < kReplicas; ++r) sum += directions[r] * static_cast<double>(r + 1) / 6.0;
    Team::create({.replicas = kReplicas, .devices = "cpu:2"}).run([&](Replica& me) {
      torch::nn::Linear made(torch::nn::LinearOptions(40, 24).bias(false));
      made->to(torch::kDouble);
      auto net = me.share(made);
      const Tensor before = net->weight.detach().clone();
      auto optimizer = me.optimizer(Sgd{.lr = 1}, {.wire = wire});
      for (int step = 0; step < kSteps; ++step)
        me.step((net->weight * directions[me.number()]).sum(), optimizer, static_cast<double>(me.number() + 1));
      if (me.number() == 0) {
        state = optimizer.state_dict();
        moved = before - net->weight.detach();
      }
      me.barrier();
    });
    const Tensor residual = state.at("weight.residual");
    EXPECT_EQ(residual.sizes(), (std::vector<int64_t>{kReplicas, 24, 40}));
    EXPECT_GT(residual.abs().max().item<double>(), 0.1);
    EXPECT_TRUE(torch::allclose(moved + residual.sum(0), kSteps * sum, 1e-9, 1e-9));
  }
}

TEST(ErrorFeedback, IsLeftAsItWasWhereLossScalingLeavesAStepOut) {
  for (const Wire& wire : {Wire(TopK{.share = 0.1}), Wire(PowerSgd{.rank = 1})}) {
    SCOPED_TRACE(to_string(wire));
    Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) {
      auto net = me.share(torch::nn::Linear(torch::nn::LinearOptions(32, 16)));
      auto optimizer = me.optimizer(Sgd{.lr = 0.1}, {.initial_scale = 64, .wire = wire});
      const auto x = torch::linspace(-1, 1, 32).view({1, 32});
      EXPECT_TRUE(me.step(net(x).square().sum(), optimizer).updated);
      const auto before = me.state_dict(optimizer);
      EXPECT_FALSE(me.step(net(me.number() == 0 ? x / 0.0 : x).square().sum(), optimizer).updated);
      const auto after = me.state_dict(optimizer);
      for (const auto& [name, tensor] : before)
        if (name.ends_with("residual") || name.ends_with("power_sgd_q")) {
          EXPECT_TRUE(torch::equal(tensor, after.at(name))) << name;
        }
      EXPECT_TRUE(me.step(net(x).square().sum(), optimizer).updated);
      EXPECT_TRUE(net->weight.isfinite().all().item<bool>());
    });
  }
}

TEST(TopK, SendsTheLargestElementsFirst) {
  Team::create({.replicas = 1, .devices = "cpu:1"}).run([&](Replica& me) {
    torch::nn::Linear made(torch::nn::LinearOptions(10, 1).bias(false));
    auto net = me.share(made);
    auto optimizer = me.optimizer(Sgd{.lr = 1}, {.wire = TopK{.share = 0.2}});
    const auto before = net->weight.detach().clone();
    const auto x = torch::tensor({1.f, -5.f, 2.f, 3.f, -1.f, 5.f, 0.f, 2.f, 1.f, 1.f}).view({1, 10});
    me.step(net(x).sum(), optimizer);
    EXPECT_TRUE(torch::equal((before - net->weight.detach()).ne(0), x.abs().eq(5)));
    me.step(net(x).sum(), optimizer);  // what was left has doubled: 6 is the largest, then the first 5
    const auto residual = optimizer.state_dict().at("weight.residual").flatten();
    EXPECT_EQ(residual[3].item<float>(), 0);
    EXPECT_EQ(residual[1].item<float>(), 0);
    EXPECT_EQ(residual[5].item<float>(), 5);
  });
}

TEST(Wires, SendTheBytesTheyPromise) {
  constexpr int64_t kIn = 300, kOut = 200, kSteps = 4;
  const auto bytes_of = [&](const Wire& wire) {
    std::vector<int64_t> sent(2);
    const bool ran = lockstep::test::run_ranks(2, [&](const comm::Group& group) {
      const auto team = Team::create({.replicas = 2, .devices = "cpu:1", .group = group});
      team.run([&](Replica& me) {
        auto net = me.share(torch::nn::Linear(torch::nn::LinearOptions(kIn, kOut).bias(false)));
        auto optimizer = me.optimizer(Sgd{.lr = 0.1}, {.wire = wire});
        const auto step = [&] { me.step(net(torch::ones({4, kIn})).square().mean(), optimizer); };
        step();  // the first one also tells the order of gradients
        const int64_t before = team.bytes_sent();
        for (int64_t s = 0; s < kSteps; ++s) step();
        sent[group.rank()] = team.bytes_sent() - before;
      });
    });
    return ran ? static_cast<double>(sent[0] + sent[1]) / 2 / kSteps : 0;
  };
  const double none = bytes_of(ExactWire{});
  if (none == 0) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  // Pieces are rounded up to 64 numbers. With two processes each sends half of its gradients and returns half of the
  // sum; the loss, the weight, the rules' hash and who used what take 32 bytes.
  constexpr double kNumbers = kIn * kOut + 32, kRest = 32;
  EXPECT_EQ(none, 4 * kNumbers + kRest);
  EXPECT_EQ(bytes_of(RoundedWire{RoundedWire::Type::bf16}), 2 * kNumbers + kRest);
  EXPECT_EQ(bytes_of(RoundedWire{RoundedWire::Type::fp16}), 2 * kNumbers + kRest);
  // Of pieces of 32,768 and 27,232 elements.
  EXPECT_EQ(bytes_of(TopK{.share = 0.01}), 8 * (328 + 273) + kRest);
  // Small messages go whole to everybody, in multiples of 16 numbers.
  EXPECT_EQ(bytes_of(PowerSgd{.rank = 2}), 4 * (608 + 400) + kRest);
}

TEST(Wires, TellWhereProcessesHaveSetDifferentRules) {
  std::vector<std::string> said(2);
  const bool ran = lockstep::test::run_ranks(2, [&](const comm::Group& group) {
    const auto team = Team::create({.replicas = 2, .devices = "cpu:1", .group = group});
    try {
      team.run([&](Replica& me) {
        auto net = me.share(torch::nn::Linear(3, 2));
        auto optimizer = me.optimizer(Sgd{.lr = 0.1});
        for (int step = 0; step < 3; ++step) {
          if (step == 2) optimizer.set_lr(me.number() == 0 ? 0.1 : 0.2);
          me.step(net(torch::ones({4, 3})).square().mean(), optimizer);
        }
      });
    } catch (const std::exception& error) {
      said[group.rank()] = error.what();
    }
  });
  if (!ran) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  for (const std::string& one : said) EXPECT_THAT(one, HasSubstr("different rules"));
}

TEST(Wires, AreNamedAndRead) {
  for (const char* name : {"none", "bf16", "fp16", "top_k:0.05", "power_sgd:2"})
    EXPECT_EQ(to_string(parse_wire(name)), name);
  EXPECT_EQ(parse_wire("top_k"), Wire(TopK{}));
  EXPECT_EQ(parse_wire("power_sgd"), Wire(PowerSgd{}));
  for (const char* name : {"", "fp8", "top_k:", "top_k:two", "power_sgd:1.5", "bf16:3"})
    EXPECT_THROW(parse_wire(name), Error) << name;
  EXPECT_THAT([] { parse_wire("top_k:0"); }, ThrowsMessage<Error>(HasSubstr("share is 0, expected more than 0")));
  EXPECT_THAT([] { check(PowerSgd{.rank = 0}); }, ThrowsMessage<Error>(HasSubstr("rank is 0, expected at least 1")));
}

TEST(Wires, RefuseWhatTheyCannotCompress) {
  const auto run = [] {
    Team::create({.devices = "cpu:1"}).run([](Replica& me) {
      torch::nn::Linear made(4, 4);
      made->to(torch::kBFloat16);
      me.share(made);
      me.optimizer(Sgd{}, {.wire = TopK{}});
    });
  };
  EXPECT_THAT(run, ThrowsMessage<std::runtime_error>(HasSubstr("expected float32 or float64 on the CPU")));
}

TEST(Wires, StartWithWholeGradientsWhereAsked) {
  const auto train_with = [](const Wire& wire, int64_t steps) {
    return lockstep::test::run_placed({1, "cpu:2"}, {.replicas = 2, .seed = 3}, [&](Replica& me) {
      return train_over(me, {.wire = wire, .rule = Sgd{.lr = 0.1}, .steps = steps});
    });
  };
  const auto weights = [](const State& state) { return state.at("weight.fc1.weight"); };
  EXPECT_TRUE(torch::equal(weights(train_with(ExactWire{}, 2)), weights(train_with(TopK{.start = 2}, 2))));
  EXPECT_FALSE(torch::equal(weights(train_with(ExactWire{}, 3)), weights(train_with(TopK{.start = 2}, 3))));
}

}  // namespace
}  // namespace lockstep::parallel
