// SPDX-License-Identifier: Apache-2.0
// One call of backward() for all replicas of a process, as a GPU needs it: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using lockstep::test::State;
using ::testing::HasSubstr;

State train_resnet(Replica& me) {
  const auto task = lockstep::test::make_task("resnet18");
  const auto made = task->network();
  norm::convert_sync_batchnorm(*made);
  const auto network = me.share(made);
  auto optimizer = me.optimizer(Sgd{.lr = 0.05, .momentum = 0.9});
  for (int64_t step = 0; step < 2; ++step) {
    const auto [inputs, targets] = task->batch(step);
    const auto x = me.share_of(inputs);
    me.step(task->loss(*network, x, me.share_of(targets)), optimizer, static_cast<double>(x.size(0)));
  }
  return lockstep::test::state_of(me, *network, optimizer);
}

TEST(SharedBackward, GivesTheBitsOfOneForEachReplica) {
  const auto expected = lockstep::test::run_placed({1, "cpu:2"}, {.replicas = 8, .seed = 5}, train_resnet);
  const auto got =
      lockstep::test::expect_same_everywhere({.replicas = 8, .seed = 5, .shares_backward = true}, train_resnet);
  lockstep::test::expect_equal(got, expected);
}

TEST(SharedBackward, TakesReplicasWithoutALoss) {
  for (const bool shared : {false, true})
    Team::create({.replicas = 4, .devices = "cpu:2", .shares_backward = shared}).run([](Replica& me) {
      auto network = me.share(torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
      auto optimizer = me.optimizer(Sgd{.lr = 1});
      const double before = network->weight.item<double>();
      const auto loss = me.number() == 2 ? torch::Tensor() : network->forward(torch::ones({1, 1})).sum();
      me.step(loss, optimizer, me.number() == 2 ? 0 : 1);
      EXPECT_NEAR(network->weight.item<double>(), before - 1, 1e-6);
    });
}

TEST(SharedBackward, RefusesALossWithoutHistory) {
  for (const bool shared : {false, true})
    EXPECT_THAT(
        [&] {
          Team::create({.replicas = 2, .devices = "cpu:2", .shares_backward = shared}).run([](Replica& me) {
            auto network = me.share(torch::nn::Linear(1, 1));
            auto optimizer = me.optimizer(Sgd{});
            const auto loss = network->forward(torch::ones({1, 1})).sum();
            me.step(me.number() == 1 ? loss.detach() : loss, optimizer);
          });
        },
        ::testing::ThrowsMessage<ReplicaError>(HasSubstr("replica 1: backward: the loss has no history")));
}

}  // namespace
}  // namespace lockstep::parallel
