// SPDX-License-Identifier: Apache-2.0
// Convolutions in slices belong to the recipe: a placement changes nothing, and other slices change no more than
// rounding.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/replica.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::test {
namespace {

State train(parallel::Replica& me, const Task& task) {
  const auto network = me.share(task.network());
  auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
  for (int64_t step = 0; step < 3; ++step) {
    const auto [inputs, targets] = task.batch(step);
    const auto mine = me.share_of(inputs);
    me.step(task.loss(*network, mine, me.share_of(targets)), optimizer, static_cast<double>(mine.size(0)));
  }
  return state_of(me, *network, optimizer);
}

TEST(SlicesOfATeam, GiveTheSameBitsInEveryPlacement) {
  const auto task = make_task("lenet");
  const auto body = [&](parallel::Replica& me) { return train(me, *task); };
  const State whole = run_placed(placements()[0], {.replicas = 8, .seed = 7}, body);
  const State sliced = expect_same_everywhere({.replicas = 8, .seed = 7, .slices = 3}, body);
  bool differs = false;
  for (const auto& [key, tensor] : whole) {
    EXPECT_TRUE(torch::allclose(sliced.at(key), tensor, 1e-3, 1e-4)) << key;
    differs = differs || !torch::equal(sliced.at(key), tensor);
  }
  EXPECT_TRUE(differs) << "there were no slices";
}

TEST(SlicesOfATeam, AreAtLeastOne) {
  EXPECT_THROW(parallel::Team::create({.replicas = 2, .devices = "cpu:1", .slices = 0}), Error);
}

}  // namespace
}  // namespace lockstep::test
