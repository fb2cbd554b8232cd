// SPDX-License-Identifier: Apache-2.0
// Which replica computes when, and what each waits for.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/context/detail/peers.h"
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

}  // namespace
}  // namespace lockstep::parallel
