// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/comm/connect.h"
#include "lockstep/trials/compare.h"
#include "lockstep/trials/speedup.h"
#include "lockstep/trials/sweep.h"
#include "support/error_of.h"

namespace lockstep::trials {
namespace {

using test::error_of;
using testing::HasSubstr;

run::Config own_network() {
  run::Config config;
  config.model = "mine";
  config.data = "synthetic:1x8x8:4:256";
  return config;
}

TEST(Speedup, HasARowForEachBatchAndNumberOfDevices) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  SpeedupOptions options{.config = own_network(), .batches = {16, 32}, .rounds = 2, .apart = true};
  options.config.steps = 6;
  int rounds = 0;
  const auto result = speedup(options, [&](const SpeedupRound& round) {
    EXPECT_EQ(round.round, 1 + rounds / 4);
    EXPECT_GT(round.seconds_per_step, 0);
    EXPECT_EQ(round.seconds_per_step_apart.has_value(), round.devices == 2);
    ++rounds;
  });
  EXPECT_EQ(rounds, 8);
  EXPECT_EQ(result.steps, 6 - warm_up_steps);
  ASSERT_EQ(result.rows.size(), 4U);
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(result.rows[row].batch, row < 2 ? 16 : 32);
    EXPECT_EQ(result.rows[row].devices, 1 + static_cast<int>(row % 2));
    EXPECT_GT(result.rows[row].seconds_per_step, 0);
    if (row % 2 == 0) {
      EXPECT_EQ(result.rows[row].speedup, 1);
    }
    EXPECT_TRUE(result.rows[row].phases);
    EXPECT_TRUE(result.rows[row].apart);
  }
}

TEST(Speedup, NumbersWithoutSenseAreNamed) {
  SpeedupOptions options{.config = own_network()};
  options.config.steps = warm_up_steps;
  EXPECT_THAT(error_of([&] { speedup(options); }), HasSubstr("--steps is 3, expected more than 3"));
  options = {.config = own_network(), .batches = {0}};
  EXPECT_THAT(error_of([&] { speedup(options); }), HasSubstr("--batch has 0"));
  options = {.config = own_network(), .rounds = 0};
  EXPECT_THAT(error_of([&] { speedup(options); }), HasSubstr("--rounds is 0"));
}

TEST(Compare, NumbersAndSplitsWithoutSenseAreNamed) {
  EXPECT_THAT(error_of([] { compare({.config = own_network(), .devices = 0}); }), HasSubstr("--devices is 0"));
  EXPECT_THAT(error_of([] { compare({.config = own_network(), .splits = {"q2"}}); }), HasSubstr("got 'q2'"));
  EXPECT_THAT(error_of([] { compare({.config = own_network(), .rates = {"fast"}}); }), HasSubstr("--rate is 'fast'"));
  EXPECT_THAT(error_of([] { compare({.config = own_network(), .devices = 1, .rates = {"1gbit"}}); }),
              HasSubstr("--rate with 1 devices"));
}

// Two devices for 4 seconds, in passes until second 3: the second one has 1.5 of those to spare.
TEST(TracedStep, LosesToItsBubbleWhatADeviceWaitsWhileAnotherIsInAPass) {
  const TracedStep step{.seconds = 4,
                        .devices = {{.spans = {{0, 1, "forward"}, {1, 3, "backward"}, {3, 4, "update"}}},
                                    {.spans = {{0.5, 1, "forward"}, {1, 2, "backward"}, {3, 3.5, "update"}}}}};
  EXPECT_DOUBLE_EQ(step.bubble(), 1.5 / 8);
}

TEST(Sweep, ATrainingThatFailsIsARowWithoutAResult) {
  SweepOptions options{.config = own_network(), .rates = {0.1, 1e18}, .devices = {2}};
  options.config.batch = 16;
  options.config.epochs = 1;
  int seen = 0;
  const auto rows = sweep(options, [&](const SweepRow&) { ++seen; });
  EXPECT_EQ(seen, 2);
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_TRUE(rows[0].result);
  EXPECT_EQ(rows[0].result->batch, 32);
  EXPECT_GT(rows[0].result->test_accuracy, 0);
  EXPECT_EQ(rows[1].lr, 1e18);
  EXPECT_FALSE(rows[1].result);
}

TEST(Trial, EndsWithTheExitCodeOfItsProcess) {
  Trial trial{.config = own_network()};
  trial.config.model = "no such network";
  try {
    run_trial(trial);
    FAIL() << "no TrialFailed";
  } catch (const TrialFailed& failed) {
    EXPECT_EQ(failed.exit_code(), 2);
  }
}

// Without this a program that forgets serve() would start itself for ever.
TEST(Trial, IsNotRunWithinATrial) {
  setenv("LOCKSTEP_TRIAL", "/no/such/folder", 1);
  EXPECT_THAT(error_of([] { run_trial({}); }), HasSubstr("expected trials::serve() at the start of main()"));
  unsetenv("LOCKSTEP_TRIAL");
}

}  // namespace
}  // namespace lockstep::trials
