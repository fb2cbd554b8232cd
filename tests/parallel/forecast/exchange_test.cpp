// SPDX-License-Identifier: Apache-2.0
// The messages of canonical sums, and what they cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/comm/detail/canonical_plan.h"
#include "lockstep/parallel/forecast.h"

namespace lockstep::parallel {
namespace {

TEST(CanonicalPlan, CoversATensorOnce) {
  for (const int64_t ranks : {2, 3, 8})
    for (const int64_t numel : {3, 2048, 2049, 1'000'003}) {
      const comm::CanonicalPlan plan(Placement::even(8, ranks), numel, 4);
      int64_t covered = 0;
      for (int64_t piece = 0; piece < plan.pieces(); ++piece)
        for (const Interval slice : plan.slices(piece)) {
          if (!plan.is_small()) {
            EXPECT_EQ(slice.begin, covered);
          }
          covered = slice.end;
        }
      EXPECT_EQ(covered, numel);
      EXPECT_EQ(plan.is_small(), numel <= 2048);
    }
}

// 16 ranks: four rounds there and four back, and each rank ends with its own slice of the whole.
TEST(CanonicalPlan, LetsManyRanksMeetByHalves) {
  constexpr int64_t ranks = 16, numel = 1'000'003;
  const comm::CanonicalPlan plan(Placement::even(64, ranks), numel, 4);
  ASSERT_TRUE(plan.meets_by_halves());
  EXPECT_EQ(plan.rounds(), 4);
  std::vector<bool> covered(numel, false);
  int64_t sent = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Interval slice = plan.kept(rank, plan.rounds());
    for (int64_t at = slice.begin; at < slice.end; ++at) {
      EXPECT_FALSE(covered[at]);
      covered[at] = true;
    }
    sent += plan.bytes_sent(rank);
  }
  EXPECT_THAT(covered, testing::Each(true));
  EXPECT_EQ(sent, 2 * (ranks - 1) * numel * 4);
  EXPECT_FALSE(comm::CanonicalPlan(Placement::even(48, ranks), numel, 4).meets_by_halves());
  EXPECT_FALSE(comm::CanonicalPlan(Placement::even(12, 12), numel, 4).meets_by_halves());
}

// Twenty messages in place of 2,046: 1,024 processes, a link on which messages are what costs.
TEST(CanonicalPlan, SendsFewMessagesWhereRanksAreMany) {
  const LinkCost link{.bytes_per_second = 1e15, .message = 1};
  const auto seconds = [&](bool may_halve) {
    return all_reduce_seconds(Placement::even(1024, 1024), 1 << 20, 4, Order::canonical, link, may_halve);
  };
  EXPECT_NEAR(seconds(true), 20, 1e-3);
  EXPECT_NEAR(seconds(false), 2046, 1e-3);
}

}  // namespace
}  // namespace lockstep::parallel
