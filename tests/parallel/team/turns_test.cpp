// SPDX-License-Identifier: Apache-2.0
// Which replica computes when, and what each waits for.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "lockstep/context/detail/peers.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"

namespace lockstep::parallel {
namespace {

TEST(TeamTurns, GivesTheReplicaThatComputesLongestItsTurnEarly) {
  std::vector<int64_t> turns;  // one replica computes at a time
  Team::create({.replicas = 4, .devices = "cpu:1"}).run([&](Replica& me) {
    for (int part = 0; part < 4; ++part) {
      if (me.number() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      turns.push_back(me.number());
      me.barrier();
    }
  });
  ASSERT_EQ(turns.size(), 16);
  // The last one to come goes on at once; then it is the slow one's turn.
  EXPECT_LE(std::find(turns.end() - 4, turns.end(), 2) - (turns.end() - 4), 1) << testing::PrintToString(turns);
}

TEST(TeamTurns, GathersFromAllWhileTheyDoOtherThings) {
  for (const char* devices : {"cpu:1", "cpu:2", "cpu:4"})
    Team::create({.replicas = 4, .devices = devices}).run([](Replica& me) {
      const auto mine = [&](double offset) { return at::full({2}, offset + static_cast<double>(me.number())); };
      const auto all = [](double offset) { return (at::arange(4.0) + offset).unsqueeze(1).expand({4, 2}); };
      Peers& peers = *current_peers();
      for (int round = 0; round < 3; ++round) {
        const auto first = peers.begin_all_gather(mine(0));
        const auto never_asked_for = peers.begin_all_gather(mine(10));
        const auto third = peers.begin_all_gather(mine(20));
        me.barrier();
        EXPECT_TRUE(at::equal(third(), all(20)));
        EXPECT_TRUE(at::equal(me.all_gather(mine(30)), all(30)));
        if (me.number() == 1) continue;
        EXPECT_TRUE(at::equal(first(), all(0)));
      }
    });
}

// One device, and what each replica does there, as it happens.
std::vector<std::string> events_of(norm::BatchNormMode mode, bool shares_backward) {
  std::vector<std::string> events;
  Team::create({.replicas = 3, .devices = "cpu:1", .shares_backward = shares_backward}).run([&](Replica& me) {
    torch::nn::Sequential made(torch::nn::Linear(2, 4), torch::nn::BatchNorm1d(4), torch::nn::BatchNorm1d(4));
    norm::convert_sync_batchnorm(made, mode);
    auto network = me.share(made);
    auto optimizer = me.optimizer(Sgd{});
    me.barrier();
    if (me.number() == 0) events.clear();
    me.barrier();
    const std::string number = std::to_string(me.number());
    events.push_back("begins " + number);
    const auto loss = network->forward(at::full({4, 2}, 1.0 + static_cast<double>(me.number()))).sum();
    loss.register_hook([&, number](const at::Tensor&) { events.push_back("differentiates " + number); });
    me.step(loss, optimizer);
  });
  return events;
}

TEST(TeamTurns, AReplicaGoesThroughGhostBatchNormsWithoutWaitingSoOneSetOfActivationsLives) {
  for (const bool shares_backward : {false, true}) {
    const auto events = events_of(norm::BatchNormMode::ghost, shares_backward);
    ASSERT_EQ(events.size(), 6);
    for (size_t i = 0; i < events.size(); i += 2)
      EXPECT_EQ(events[i].substr(7), events[i + 1].substr(15)) << testing::PrintToString(events);
  }
}

TEST(TeamTurns, SynchronisedBatchNormsBringAllReplicasToThemBeforeAnyGoesBack) {
  for (const bool shares_backward : {false, true}) {
    const auto events = events_of(norm::BatchNormMode::synchronised, shares_backward);
    ASSERT_EQ(events.size(), 6);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].substr(0, 6), "begins") << testing::PrintToString(events);
  }
}

}  // namespace
}  // namespace lockstep::parallel
