// SPDX-License-Identifier: Apache-2.0
// What a team says to its caller's mistakes, and what becomes of the others when a replica fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <pthread.h>

#include <chrono>
#include <functional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/peers.h"
#include "lockstep/parallel/functional.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/parallel/team.h"
#include "parallel/crew/crew.h"

namespace lockstep::parallel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

torch::nn::Sequential make_network() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::Linear(4, 2));
}

TEST(TeamErrors, NamesTheReplicaThatFailed) {
  const auto team = Team::create({.replicas = 4, .devices = "cpu:2"});
  try {
    team.run([&](Replica& me) {
      me.barrier();
      if (me.number() == 2) throw std::runtime_error("no more cheese");
      me.barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const ReplicaError& error) {
    EXPECT_EQ(error.replica(), 2);
    EXPECT_STREQ(error.what(), "replica 2: no more cheese");
  }
  std::atomic<int> ran = 0;
  team.run([&](Replica& me) {  // the team is whole again
    me.barrier();
    ++ran;
  });
  EXPECT_EQ(ran, 4);
}

TEST(TeamErrors, TurnsDifferentCallsIntoAnError) {
  const auto team = Team::create({.replicas = 2, .devices = "cpu:2"});
  EXPECT_THAT(
      [&] { team.run([](Replica& me) { me.number() == 0 ? me.barrier() : (void)me.all_gather(torch::zeros({1})); }); },
      ThrowsMessage<ReplicaError>(HasSubstr("expected the same calls in the same order on every replica")));
  EXPECT_THAT(
      [&] {
        team.run([](Replica& me) {
          if (me.number() == 0) me.barrier();
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("1 replica has returned while others wait in this call")));
}

TEST(TeamErrors, NobodyWaitsForWhatAnotherReplicaNeverBrings) {
  for (const char* devices : {"cpu:1", "cpu:2"}) {
    const auto team = Team::create({.replicas = 2, .devices = devices});
    const auto gather_without_the_other = [&](const std::function<void(Replica&)>& other) {
      team.run([&](Replica& me) {
        if (me.number() == 1) return other(me);
        const auto gathered = current_peers()->begin_all_gather(torch::zeros({1}));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        gathered();
      });
    };
    const auto error = ThrowsMessage<ReplicaError>(HasSubstr("expected the same calls in the same order"));
    EXPECT_THAT([&] { gather_without_the_other([](Replica&) {}); }, error);
    EXPECT_THAT([&] { gather_without_the_other([](Replica& me) { me.barrier(); }); }, error);
    EXPECT_THAT(
        [&] { gather_without_the_other([](Replica& me) { static_cast<void>(me.all_gather(torch::zeros({2}))); }); },
        ThrowsMessage<ReplicaError>(HasSubstr("expected the same on all")));
  }
}

TEST(TeamErrors, SaysWhatIsWrongWithItsOptions) {
  const auto message = [](const char* text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  EXPECT_THAT([] { Team::create({.replicas = 0}); }, message("replicas is 0, expected at least 1"));
  EXPECT_THAT([] { Team::create({.replicas = 4, .blocks = {3, 1}}); }, message("expected 1 (one a process) with 4"));
  EXPECT_THAT([] { Team::create({.replicas = 1, .devices = "gpu"}); }, message("gpu"));
  EXPECT_EQ(Team::create({.replicas = 8, .devices = "cpu:2"}).describe(), "8 replicas on 2 threads");
}

TEST(TeamErrors, SaysWhereTheSystemGivesNoThread) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);  // more than there are addresses
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THAT([] { Team::create({.replicas = 2, .devices = "cpu:2"}).run([](Replica& me) { me.barrier(); }); },
              ThrowsMessage<ReplicaError>(HasSubstr("replica 0: no thread could be started for it")));
  EXPECT_THAT([] { detail::run_replicas(2, [](int64_t) {}); },
              ThrowsMessage<ReplicaError>(HasSubstr("replica 0: no thread could be started for it")));
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

// A network made outside run() is cloned for the replicas, and a clone knows only what Cloneable was told.
TEST(TeamErrors, RefusesAClassWhoseCloneIsItsBase) {
  struct Base : torch::nn::Cloneable<Base> {
    void reset() override { layer = register_module("layer", torch::nn::Linear(2, 2)); }
    Base() { Base::reset(); }
    torch::nn::Linear layer = nullptr;
  };
  struct Derived : Base {};
  const auto network = std::make_shared<Derived>();
  EXPECT_THAT([&] { Team::create({.replicas = 2, .devices = "cpu:2"}).run([&](Replica& me) { me.share(network); }); },
              ThrowsMessage<ReplicaError>(HasSubstr("expected its own type): make one inside run()")));
}

TEST(TeamErrors, EndReplicasThatBeginAfterAFailure) {
  Crew crew(2, 2);
  crew.enter(0);
  crew.stop(0, std::make_exception_ptr(std::runtime_error("no more cheese")));
  EXPECT_THROW(crew.enter(1), CrewStopped);  // a permit is free
}

TEST(TeamErrors, RefusesParametersThatCameLater) {
  EXPECT_THAT(
      [] {
        Team::create({.devices = "cpu:1"}).run([](Replica& me) {
          auto net = me.share(make_network());
          auto optimizer = me.optimizer(Sgd{});
          net->register_parameter("late", torch::zeros({2}));
          me.step(net->forward(torch::ones({2, 3})).sum(), optimizer);
        });
      },
      ThrowsMessage<ReplicaError>(HasSubstr("register every parameter before share()")));
}

TEST(TeamErrors, RefusesModulesThatCameLaterIfTheyHaveParameters) {
  const auto step_with = [](const std::shared_ptr<torch::nn::Module>& late) {
    Team::create({.devices = "cpu:1"}).run([&](Replica& me) {
      auto net = me.share(make_network());
      auto optimizer = me.optimizer(Sgd{});
      net[0]->register_module("late", late);
      me.step(net->forward(torch::ones({2, 3})).sum(), optimizer);
    });
  };
  EXPECT_THAT([&] { step_with(torch::nn::Linear(2, 2).ptr()); },
              ThrowsMessage<ReplicaError>(HasSubstr("the network has 6 parameters, 4 when it was shared")));
  step_with(torch::nn::ReLU().ptr());
}

}  // namespace
}  // namespace lockstep::parallel
