// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/connect.h"
#include "support/error_of.h"

namespace lockstep::trials {
namespace {

using test::error_of;
using testing::HasSubstr;

VerifyOptions verified_network() {
  VerifyOptions options;
  options.config.model = "mine";
  options.config.data = "synthetic:1x8x8:4:256";
  options.config.steps = 4;
  return options;
}

TEST(Verify, UsualPlacementsAreThoseOfAnyNumberOfReplicas) {
  EXPECT_EQ(usual_placements(8, true), "1;2;8;2x4;3+3+2");
  EXPECT_EQ(usual_placements(8, false), "1;2;8");
  for (const int64_t replicas : {2, 3, 4, 5, 7, 16})
    EXPECT_GE(parse_placements(usual_placements(replicas, true), replicas).size(), 3U) << replicas;
}

TEST(Verify, PlacementsThatMakeNoSenseAreNamed) {
  for (const auto& [placements, message] : {std::pair("1;3+3", "'3+3' has 6 replicas, expected 8"),
                                            {"1;x2", "placement 'x2' has ''"},
                                            {"1", "expected two or more"},
                                            {"1;9x1", "9 processes for 8 replicas"}}) {
    VerifyOptions options = verified_network();
    options.placements = placements;
    EXPECT_THAT(error_of([&] { verify(options); }), HasSubstr(message));
  }
}

TEST(Verify, WhatNobodyHasSetIsWorkedOut) {
  const auto usual = with_defaults(VerifyOptions{}).config;
  EXPECT_EQ(usual.steps, 20);
  EXPECT_EQ(usual.epochs, 0);
  EXPECT_EQ(usual.replicas, 8);
  EXPECT_EQ(usual.batch, 64);
  VerifyOptions options = verified_network();
  options.config.replicas = 4;
  options.given = {"epochs"};
  const auto mine = with_defaults(with_defaults(options));
  EXPECT_EQ(mine.config.steps, 4);
  EXPECT_EQ(mine.config.epochs, run::Config().epochs);
  EXPECT_EQ(mine.config.replicas, 4);
  EXPECT_EQ(mine.placements, usual_placements(4, !comm::backends().empty()));
}

TEST(Verify, ANetworkOfOnesOwnEndsInTheSameBits) {
  VerifyOptions options = verified_network();
  options.placements = comm::backends().empty() ? "1;2" : "1;2;3+3+2";
  std::vector<std::string> seen;
  const auto result = verify(options, [&](const VerifyRow& row) { seen.push_back(row.placement); });
  EXPECT_TRUE(result.identical);
  ASSERT_EQ(result.rows.size(), seen.size());
  EXPECT_EQ(seen.size(), comm::backends().empty() ? 2U : 3U);
  for (const auto& row : result.rows) EXPECT_GT(row.seconds_per_step, 0) << row.placement;
}

// The ring adds up in an order that follows the processes.
TEST(Verify, AnOrderThatFollowsThePlacementIsFoundWithStepAndTensor) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  VerifyOptions options = verified_network();
  options.config.reduce = "ring";
  options.placements = "1;3+3+2";
  const auto result = verify(options);
  EXPECT_FALSE(result.identical);
  EXPECT_FALSE(result.rows[0].difference);
  ASSERT_TRUE(result.rows[1].difference);
  EXPECT_EQ(result.rows[1].difference->step, 1U);
  EXPECT_THAT(result.rows[1].difference->tensor, testing::MatchesRegex("(first|second)\\.(weight|bias)"));
}

TEST(FirstDifference, IsTheEarliestStepAndItsFirstTensor) {
  TrialResult a;
  a.names = {"weight", "bias"};
  a.hashes = {{"1", "2"}, {"3", "4"}};
  TrialResult b = a;
  EXPECT_FALSE(first_difference(a, b));
  b.hashes[1][1] = "5";
  EXPECT_EQ(first_difference(a, b)->step, 2U);
  EXPECT_EQ(first_difference(a, b)->tensor, "bias");
  b.hashes.pop_back();
  EXPECT_EQ(first_difference(a, b)->tensor, "the number of steps");
}

}  // namespace
}  // namespace lockstep::trials
