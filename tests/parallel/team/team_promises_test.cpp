// SPDX-License-Identifier: Apache-2.0
// What a user of libtorch may do around a team, and what comes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/parallel/team.h"

namespace lockstep::parallel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

torch::nn::Sequential make_normed_network() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
}

Team make_team(int64_t replicas = 2) {
  return Team::create({.replicas = replicas, .devices = "cpu:2"});
}

void make_step(Replica& me, torch::nn::Sequential& network, Optimizer& optimizer) {
  me.step(network->forward(torch::ones({3, 3})).square().mean(), optimizer, 3);
}

TEST(TeamPromises, WeightsThatMovedAwayAreAnErrorAndNotATrainingOfNothing) {
  const auto refuse = [](const std::function<void(torch::nn::Sequential&)>& move) {
    const auto train = [&](Replica& me) {
      auto network = me.share(make_normed_network());
      auto optimizer = me.optimizer(Sgd{.lr = 0.1});
      make_step(me, network, optimizer);
      move(network);
      make_step(me, network, optimizer);
    };
    EXPECT_THAT([&] { make_team().run(train); },
                ThrowsMessage<ReplicaError>(HasSubstr("no longer lies in the memory that the optimiser updates")));
  };
  refuse([](auto& network) {  // as torch::load does it
    for (auto& parameter : network->parameters()) parameter.set_data(parameter.detach().clone());
  });
  refuse([](auto& network) { network->to(torch::kDouble), network->to(torch::kFloat); });
  const auto share_again = [](Replica& me) {
    auto network = me.share(make_normed_network());
    auto optimizer = me.optimizer(Sgd{.lr = 0.1});
    me.share(network);
    make_step(me, network, optimizer);
  };
  EXPECT_THAT([&] { make_team().run(share_again); }, ThrowsMessage<ReplicaError>(HasSubstr("no longer lies")));
}

TEST(TeamPromises, ARuleMayChangeItsNumbersButNotWhatItKeeps) {
  const auto change = [](const Rule& first, const Rule& then) {
    make_team().run([&](Replica& me) {
      auto network = me.share(make_normed_network());
      auto optimizer = me.optimizer(first);
      make_step(me, network, optimizer);
      optimizer.rules()[0] = then;
      make_step(me, network, optimizer);
    });
  };
  change(Sgd{.lr = 0.1, .momentum = 0.9}, Sgd{.lr = 0.2, .momentum = 0.5});
  for (const auto& rules : {std::pair<Rule, Rule>{Sgd{.lr = 0.1}, Sgd{.lr = 0.1, .momentum = 0.9}},
                            {Sgd{.lr = 0.1, .momentum = 0.9}, Sgd{.lr = 0.1}},
                            {Adam{}, Adam{.amsgrad = true}},
                            {Adam{}, AdamW{}}})
    EXPECT_THAT([&] { change(rules.first, rules.second); },
                ThrowsMessage<ReplicaError>(HasSubstr("rule keeps other tensors")));
  EXPECT_THAT([&] { change(Sgd{.lr = 0.1}, Sgd{.lr = -1}); }, ThrowsMessage<ReplicaError>(HasSubstr("lr is -1")));
}

TEST(TeamPromises, FrozenPartsStayFrozen) {
  auto outside = make_normed_network();
  outside->children()[0]->parameters()[0].set_requires_grad(false);
  make_team().run([&](Replica& me) {
    auto network = me.share(outside);
    EXPECT_FALSE(network->parameters()[0].requires_grad());
    EXPECT_TRUE(network->parameters()[1].requires_grad());
    network->children()[1]->eval();  // statistics that are to stay
    me.evaluate(8, 4, [&](Interval part) {
      EXPECT_FALSE(network->is_training());
      return network->forward(torch::ones({part.size(), 3})).sum().to(torch::kDouble).view({1});
    });
    EXPECT_TRUE(network->is_training());
    EXPECT_TRUE(network->children()[0]->is_training());
    EXPECT_FALSE(network->children()[1]->is_training());
  });
}

TEST(TeamPromises, AScopeOfTheUsersLeavesReplicasTheirOwnDraws) {
  std::mutex mutex;
  std::set<double> drawn;
  make_team(4).run([&](Replica& me) {
    {
      const RandomScope own(RandomKey{7});
      me.share(make_normed_network());
    }
    const double mine = torch::rand({1}).item<double>();
    const std::lock_guard lock(mutex);
    drawn.insert(mine);
  });
  EXPECT_EQ(drawn.size(), 4u);
}

TEST(TeamPromises, ThreadsToComeHaveTheCallersIntraOpThreads) {
  at::set_num_threads(3);
  for (int run = 0; run < 5; ++run) {
    make_team(4).run([](Replica& me) { me.barrier(); });
    int there = 0;
    std::thread([&] { there = at::get_num_threads(); }).join();
    EXPECT_EQ(there, 3);
    EXPECT_EQ(at::get_num_threads(), 3);
  }
  at::set_num_threads(1);
}

/// Those that a failure stopped may have gone when the last one returns.
TEST(TeamPromises, ReplicasAreToldAlike) {
  const auto other_clipping = [](Replica& me) {
    auto network = me.share(make_normed_network());
    me.optimizer(Sgd{}, {.clip_norm = me.number() == 0 ? 1.0 : 2.0});
  };
  const auto other_formats = [](Replica& me) {
    me.share(make_normed_network(),
             {.memory_format = me.number() == 0 ? MemoryFormat::contiguous : MemoryFormat::channels_last});
  };
  EXPECT_THAT([&] { make_team().run(other_clipping); },
              ThrowsMessage<ReplicaError>(HasSubstr("optimizer: replicas have passed different options")));
  EXPECT_THAT([&] { make_team().run(other_formats); },
              ThrowsMessage<ReplicaError>(HasSubstr("share: replicas have passed different options")));
}

TEST(TeamPromises, AReplicaMayReturnLongAfterAnotherHasFailed) {
  const auto team = make_team(12);
  std::atomic<int> after = 0;
  const auto body = [&](Replica& me) {
    me.barrier();
    const int order = after++;
    if (order == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      throw std::runtime_error("disk full");
    }
    if (order == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  EXPECT_THAT([&] { team.run(body); }, ThrowsMessage<ReplicaError>(HasSubstr("disk full")));
}

}  // namespace
}  // namespace lockstep::parallel
