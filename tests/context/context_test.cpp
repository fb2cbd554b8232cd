// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/context.h"

#include <gtest/gtest.h>

#include <thread>

#include "lockstep/context/detail/peers.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/context/timeline_scope.h"

namespace lockstep {
namespace {

class Numbered : public Peers {
 public:
  explicit Numbered(int64_t replica) : replica_(replica) {}
  int64_t replica() const override { return replica_; }
  int64_t replicas() const override { return 2; }
  at::Tensor all_gather(const at::Tensor& mine) override { return mine; }

 private:
  int64_t replica_;
};

TEST(ContextScope, IsOfOneThreadAndNests) {
  Numbered outer(0), inner(1);
  EXPECT_EQ(current_peers(), nullptr);
  {
    const ContextScope first({.peers = &outer});
    EXPECT_EQ(current_peers()->replica(), 0);
    std::thread([] { EXPECT_EQ(current_peers(), nullptr); }).join();
    {
      const ContextScope second({.peers = &inner});
      EXPECT_EQ(current_peers()->replica(), 1);
    }
    EXPECT_EQ(current_peers()->replica(), 0);
  }
  EXPECT_EQ(current_peers(), nullptr);
}

TEST(ContextScope, HidesWhatTheThreadKnewBefore) {
  Numbered peers(0);
  Timeline timeline;
  const TimelineScope timed(&timeline);
  const RandomScope random(RandomKey{1});
  {
    const ContextScope scope({.peers = &peers});
    EXPECT_EQ(Context::current().timeline, nullptr);
    EXPECT_EQ(Draws::current(), nullptr);
  }
  EXPECT_EQ(Context::current().timeline, &timeline);
  EXPECT_EQ(Draws::current(), &random);
}

TEST(ContextScope, KeepsTheRestWhereAScopeOfTheCallersChangesOneField) {
  Numbered peers(1);
  Draws draws(RandomKey{1});
  const ContextScope scope({.peers = &peers, .draws = &draws});
  {
    const RandomScope own(RandomKey{2});
    EXPECT_EQ(Draws::current(), &own);
    EXPECT_EQ(current_peers(), &peers);
  }
  EXPECT_EQ(Draws::current(), &draws);
}

TEST(PhaseScope, IsASpanOfTheThreadsTimeline) {
  Timeline timeline(true);
  const TimelineScope scope(&timeline);
  { const PhaseScope waiting(Phase::wait, "step"); }
  ASSERT_EQ(timeline.spans().size(), 1u);
  EXPECT_STREQ(timeline.spans()[0].name, "wait");
  EXPECT_STREQ(timeline.spans()[0].what, "step");
}

TEST(PhaseScope, CostsNothingOnAThreadWithoutATimeline) {
  EXPECT_EQ(Context::current().timeline, nullptr);
  const PhaseScope scope(Phase::wait);
}

}  // namespace
}  // namespace lockstep
