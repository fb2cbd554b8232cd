// SPDX-License-Identifier: Apache-2.0
// Devices that share the slices of each layer change no bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "parallel/networks.h"
#include "support/error_of.h"
#include "support/team/placements.h"

namespace lockstep::test {
namespace {

using parallel::Replica;
using testing::HasSubstr;

State train(Replica& me, const Task& task) {
  const auto network = me.share(task.network());
  auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
  for (int64_t step = 0; step < 3; ++step) {
    const auto [inputs, targets] = task.batch(step);
    const auto mine = me.share_of(inputs);
    me.step(task.loss(*network, mine, me.share_of(targets)), optimizer, static_cast<double>(mine.size(0)));
  }
  return state_of(me, *network, optimizer);
}

struct Place {
  const char* devices;
  parallel::Split split;
};

TEST(SharedSlices, EndInTheBitsOfOneDevice) {
  const auto task = make_task("lenet");
  const auto body = [&](Replica& me) { return train(me, *task); };
  const parallel::TeamOptions recipe{.replicas = 8, .seed = 7, .slices = 4};
  const State alone = run_placed({1, "cpu:1"}, recipe, body);
  ASSERT_FALSE(alone.empty());
  for (const Place& place : {Place{"cpu:2", {.sharers = 2}},
                             {"cpu:4", {.sharers = 4}},
                             {"cpu:4", {.sharers = 2}},
                             {"cpu:3", {.sharers = 2}},
                             {"cpu:1", {.sharers = 2}}}) {
    SCOPED_TRACE(place.devices + (" as " + parallel::to_string(place.split)));
    parallel::TeamOptions options = recipe;
    options.split = place.split;
    expect_equal(run_placed({1, place.devices}, options, body), alone);
  }
}

TEST(SharedSlices, AreANumberThatTheSharersDivide) {
  EXPECT_THAT(error_of([] {
                parallel::Team::create({.replicas = 2, .devices = "cpu:2", .slices = 3, .split = {.sharers = 2}});
              }),
              HasSubstr("split t2 shares 3 slices between 2 devices, expected a number that they divide"));
}

// Whatever a slice throws, on whichever thread, is its replica's error.
TEST(SharedSlices, FailAsTheLayerThatTheyBelongTo) {
  const auto team = parallel::Team::create({.replicas = 2, .devices = "cpu:2", .slices = 2, .split = {.sharers = 2}});
  EXPECT_THROW(team.run([](Replica&) { torch::mm(torch::ones({3, 4}), torch::ones({5, 2})); }), parallel::ReplicaError);
}

}  // namespace
}  // namespace lockstep::test
