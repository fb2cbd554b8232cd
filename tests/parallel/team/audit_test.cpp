// SPDX-License-Identifier: Apache-2.0
// Devices that compute wrongly: gradients that are computed twice, and weights that processes compare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/audit_error.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using lockstep::test::Placed;
using lockstep::test::State;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

// A network of the contract, with two passes a step.
State train(Replica& me, const std::string& name, norm::BatchNormMode mode) {
  const auto task = lockstep::test::make_task(name);
  const auto made = task->network();
  norm::convert_sync_batchnorm(*made, mode);
  const auto network = me.share(made);
  auto optimizer = me.optimizer(AdamW{.lr = 3e-3});
  int64_t step = 0;
  const auto loss_of = [&](int64_t replica, int64_t pass) {
    const auto [inputs, targets] = task->batch(2 * step + pass);
    const auto share = Placement::even(inputs.size(0), me.replicas()).block(replica);
    return task->loss(*network, inputs.narrow(0, share.begin, share.size()).clone(),
                      targets.narrow(0, share.begin, share.size()).clone());
  };
  me.audit_with(loss_of);
  for (; step < 3; ++step) {
    me.backward(loss_of(me.number(), 0), optimizer, 1 + static_cast<double>(me.number()));
    me.step(loss_of(me.number(), 1), optimizer, 2);
  }
  me.watch_divergence(optimizer);
  return lockstep::test::state_of(me, *network, optimizer);
}

using Recipe = std::pair<const char*, norm::BatchNormMode>;

class AuditedRun : public testing::TestWithParam<Recipe> {};

TEST_P(AuditedRun, HasTheBitsOfTheOther) {
  pin_numerics();
  const auto [name, mode] = GetParam();
  const TeamOptions plain{.replicas = 4, .seed = 5}, audited{.replicas = 4, .seed = 5, .audit = 1};
  const auto body = [&name = name, mode = mode](Replica& me) { return train(me, name, mode); };
  const State expected = lockstep::test::run_placed({1, "cpu:2"}, plain, body);
  std::vector<Placed> placements{{1, "cpu:2"}};
  if (lockstep::test::joins_ranks()) placements.push_back({3, "cpu:1"});
  for (const Placed& placed : placements) {
    SCOPED_TRACE(placed);
    lockstep::test::expect_equal(lockstep::test::run_placed(placed, audited, body), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(, AuditedRun,
                         testing::Values(Recipe{"lenet", norm::BatchNormMode::synchronised},
                                         Recipe{"resnet18", norm::BatchNormMode::synchronised},
                                         Recipe{"resnet18", norm::BatchNormMode::ghost},
                                         Recipe{"lstm", norm::BatchNormMode::synchronised}),
                         [](const auto& info) {
                           return text(info.param.first,
                                       info.param.second == norm::BatchNormMode::ghost ? "WithGhosts" : "");
                         });

// What a device does to a gradient.
using Fault = std::function<Tensor(const std::string& parameter, const Tensor& gradient)>;

Tensor with_bit_flipped(const Tensor& gradient, std::mt19937_64& draws) {
  const auto out = gradient.contiguous().clone();
  auto* const bytes = static_cast<uint8_t*>(out.mutable_data_ptr());
  bytes[draws() % out.nbytes()] ^= static_cast<uint8_t>(1U << draws() % 8);
  return out;
}

// A small network, some steps.
void train_small(Replica& me, const Fault& fault, int64_t steps = 1) {
  torch::nn::Sequential made(torch::nn::Linear(6, 5), torch::nn::ReLU(), torch::nn::Linear(5, 3));
  auto network = me.share(made);
  for (auto& item : network->named_parameters())
    item.value().register_hook([&fault, name = item.key()](const Tensor& gradient) { return fault(name, gradient); });
  auto optimizer = me.optimizer(Sgd{.lr = 0.1});
  const auto loss_of = [&](int64_t replica, int64_t) {
    return network->forward(torch::arange(24.).view({4, 6}).cos() + replica).square().mean();
  };
  me.audit_with(loss_of);
  for (int64_t step = 0; step < steps; ++step) me.step(loss_of(me.number(), 0), optimizer);
}

// What the audit says of it; empty where it says nothing.
std::optional<AuditError> audit_of(const Team& team, const Fault& fault, int64_t steps = 1) {
  try {
    team.run([&](Replica& me) { train_small(me, fault, steps); });
  } catch (const ReplicaError& error) {
    try {
      std::rethrow_exception(error.cause());
    } catch (const AuditError& found) {
      return found;
    }
  }
  return std::nullopt;
}

TEST(Audit, FindsEachBitThatFlipsInAGradient) {
  pin_numerics();
  const auto team = Team::create({.replicas = 1, .devices = "cpu:2", .audit = 1});
  std::mt19937_64 draws(1);
  constexpr int kFlips = 2000;
  int found = 0;
  for (int flip = 0; flip < kFlips; ++flip) {
    std::atomic<int> gradients = 0;
    const int which = static_cast<int>(draws() % 8);  // of four that a pass has, and four of the second pass
    found += audit_of(team, [&](const std::string&, const Tensor& gradient) {
               return gradients++ == which ? with_bit_flipped(gradient, draws) : gradient;
             }).has_value();
  }
  EXPECT_EQ(found, kFlips);
  EXPECT_FALSE(audit_of(team, [](const std::string&, const Tensor& gradient) { return gradient; }));
}

// The threads of this test run on so many cores.
class OnCores {
 public:
  explicit OnCores(int count) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t now;
    CPU_ZERO(&now);
    for (int core = 0; core < CPU_SETSIZE && static_cast<int>(cores_.size()) < count; ++core)
      if (CPU_ISSET(core, &before_)) {
        CPU_SET(core, &now);
        cores_.push_back(core);
      }
    sched_setaffinity(0, sizeof now, &now);
  }
  ~OnCores() { sched_setaffinity(0, sizeof before_, &before_); }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;
  const std::vector<int>& cores() const { return cores_; }

 private:
  cpu_set_t before_{};
  std::vector<int> cores_;
};

// A core that computes wrongly whenever it is used.
std::optional<AuditError> audit_of_core(const Team& team, int core) {
  return audit_of(
      team,
      [core](const std::string& parameter, const Tensor& gradient) {
        return parameter == "2.bias" && sched_getcpu() == core ? gradient + 1 : gradient;
      },
      20);
}

TEST(Audit, OfTwoCoresNobodyCanTellWhichIsWrong) {
  pin_numerics();
  const OnCores on(2);
  if (on.cores().size() < 2) GTEST_SKIP() << "this machine has one core";
  const auto found = audit_of_core(Team::create({.replicas = 2, .devices = "cpu:2", .audit = 1}), on.cores().front());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->faulty(), -1);
  EXPECT_THAT(found->what(),
              AllOf(HasSubstr("the gradient of 2.bias of replica "), HasSubstr("audit: in step 1 "),
                    HasSubstr(text("core ", on.cores()[0], " of ")), HasSubstr(text("core ", on.cores()[1], " of ")),
                    HasSubstr("with three devices a vote would say which is wrong")));
}

TEST(Audit, OfThreeCoresTheWrongOneIsNamed) {
  pin_numerics();
  const OnCores on(3);
  if (on.cores().size() < 3) GTEST_SKIP() << "this machine has less than three cores";
  for (const int core : on.cores()) {
    const auto found = audit_of_core(Team::create({.replicas = 3, .devices = "cpu:3", .audit = 1}), core);
    ASSERT_TRUE(found);
    EXPECT_THAT(found->what(), HasSubstr(text("has other bits on core ", core, " of ")));
  }
}

class AuditOfProcesses : public testing::Test {
 protected:
  void SetUp() override {
    pin_numerics();
    if (!lockstep::test::joins_ranks()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  }
};

TEST_F(AuditOfProcesses, TheWrongOneOfThreeIsNamedToAll) {
  for (const int wrong : {0, 1, 2}) {
    std::array<std::string, 3> said;
    lockstep::test::run_ranks(3, [&](const comm::Group& group) {
      const auto team = Team::create({.replicas = 5, .devices = "cpu:2", .group = group, .seed = 3, .audit = 2});
      std::mt19937_64 draws(wrong);
      std::mutex mutex;
      const auto found = audit_of(
          team,
          [&](const std::string& parameter, const Tensor& gradient) {
            const std::lock_guard lock(mutex);
            return group.rank() == wrong && parameter == "0.weight" ? with_bit_flipped(gradient, draws) : gradient;
          },
          40);
      if (!found) return;
      EXPECT_EQ(found->faulty(), wrong);
      said[group.rank()] = found->what();
    });
    EXPECT_THAT(said[0], AllOf(HasSubstr("the gradient of 0.weight of replica "),
                               HasSubstr(text("(process ", wrong, ") computes wrongly"))));
    EXPECT_EQ(said[1], said[0]);
    EXPECT_EQ(said[2], said[0]);
  }
}

TEST_F(AuditOfProcesses, WhatSynchronisedBatchNormsExchangedIsComparedToo) {
  std::array<std::string, 3> said;
  lockstep::test::run_ranks(3, [&](const comm::Group& group) {
    const auto team = Team::create({.replicas = 3, .devices = "cpu:1", .group = group, .audit = 1});
    try {
      team.run([&](Replica& me) {
        torch::nn::Sequential made(torch::nn::Linear(6, 5), torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 1));
        norm::convert_sync_batchnorm(*made);
        auto network = me.share(made);
        auto optimizer = me.optimizer(Sgd{.lr = 0.1});
        // The wrong statistics go to all, so that all have the same wrong gradients of what follows.
        const auto loss_of = [&](int64_t replica, int64_t) {
          const auto x = torch::arange(24.).view({4, 6}).cos() + replica;
          return network->forward(group.rank() == 1 ? x * 1.5 : x).square().mean();
        };
        me.audit_with(loss_of);
        for (int step = 0; step < 20; ++step) me.step(loss_of(me.number(), 0), optimizer);
      });
    } catch (const ReplicaError& error) {
      said[group.rank()] = error.what();
    }
  });
  EXPECT_THAT(said, testing::Each(HasSubstr("(process 1) computes wrongly")));
}

TEST_F(AuditOfProcesses, WeightsThatMostProcessesHaveAreRight) {
  for (const int ranks : {2, 3}) {
    std::vector<std::string> said(ranks);
    lockstep::test::run_ranks(ranks, [&](const comm::Group& group) {
      const auto team = Team::create({.replicas = 7, .devices = "cpu:1", .group = group});
      try {
        team.run([&](Replica& me) {
          auto network = me.share(torch::nn::Sequential(torch::nn::Linear(3, 2)));
          auto optimizer = me.optimizer(Sgd{.lr = 0.1});
          me.barrier();
          const torch::NoGradGuard no_grad;
          if (me.number() == 0) network->parameters()[1].add_(1);
          me.watch_divergence(optimizer);
        });
      } catch (const ReplicaError& error) {
        said[group.rank()] = error.what();
      }
    });
    EXPECT_THAT(said, testing::Each(HasSubstr(ranks == 3 ? "0.bias of process 0 differs from that of the other 2"
                                                         : "0.bias of process 1 differs from process 0's")));
  }
}

TEST(Audit, BuffersAreComparedReplicaByReplica) {
  pin_numerics();
  const auto team = Team::create({.replicas = 3, .devices = "cpu:2"});
  EXPECT_THAT(
      [&] {
        team.run([](Replica& me) {
          auto network = me.share(torch::nn::Sequential(torch::nn::BatchNorm1d(2)));
          auto optimizer = me.optimizer(Sgd{.lr = 0.1});
          if (me.number() == 0) network->buffers()[0].add_(1);
          me.watch_divergence(optimizer, 0, true);
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("0.running_mean of replica 0 differs from that of the other 2")));
}

TEST(Audit, IsRefusedWhereItCanNotWork) {
  pin_numerics();
  const auto create = [](TeamOptions options) {
    options.audit = 4;
    return Team::create(options);
  };
  EXPECT_THAT([&] { create({.replicas = 2, .devices = "cpu:1"}); },
              ThrowsMessage<Error>(HasSubstr("there is one, expected two or more")));
  EXPECT_THAT([&] { create({.replicas = 2, .devices = "cpu:2", .split = {.parts = 2}}); },
              ThrowsMessage<Error>(HasSubstr("use --split data, or no audit")));
  EXPECT_THAT([&] { Team::create({.replicas = 2, .devices = "cpu:2", .audit = -1}); },
              ThrowsMessage<Error>(HasSubstr("audit is -1")));
  const auto team = create({.replicas = 2, .devices = "cpu:2"});
  EXPECT_THAT(
      [&] {
        team.run([](Replica& me) {
          auto network = me.share(torch::nn::Linear(3, 2));
          auto optimizer = me.optimizer(Sgd{});
          me.step(network->forward(torch::ones({1, 3})).sum(), optimizer);
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("expected a call of audit_with()")));
  EXPECT_THAT(
      [&] {
        team.run([](Replica& me) {
          const auto a = me.share(torch::nn::Linear(3, 2));
          auto optimizer = me.optimizer(Sgd{});
          const auto b = me.share(torch::nn::Linear(3, 2));
          auto another = me.optimizer(Sgd{});
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("has an optimiser already, expected one")));
  EXPECT_THAT(
      [&] {
        create({.replicas = 2, .devices = "cpu:2", .shares_backward = true}).run([](Replica& me) {
          train(me, "resnet18", norm::BatchNormMode::synchronised);
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("replicas share one backward pass")));
}

}  // namespace
}  // namespace lockstep::parallel
