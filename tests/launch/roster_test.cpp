// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/comm/detail/members.h"
#include "support/processes.h"

namespace lockstep::launch {
namespace {

namespace members = comm::members;
using test::eventually;
using ::testing::ElementsAre;

// The launchers of two hosts with two ranks each, in one process.
class TwoHosts : public testing::Test {
 protected:
  explicit TwoHosts(int least = 1) {
    Descriptor door = listen_on(0, /*any_host=*/false);
    port = port_of(door);
    kept = keep_roster(store, 4, least, std::move(door), [this](const std::string& line) { said.push_back(line); });
    other = report();
  }
  std::unique_ptr<Roster> report() const { return report_to_roster("127.0.0.1", port, 2, 2); }

  // Until this holds, or much too long.
  template <class Holds>
  bool look_until(const Holds& holds) {
    return eventually([&] {
      kept->look();
      if (other) other->look();
      return holds();
    });
  }

  ServedStore store{0, /*any_host=*/false};
  int port = 0;
  std::vector<std::string> said;
  std::unique_ptr<Roster> kept, other;
};

TEST_F(TwoHosts, ARankThatOneLosesIsNoMemberForTheOther) {
  EXPECT_EQ(other->lose(3), "; 127.0.0.1 is told") << "before there is a connection";
  EXPECT_TRUE(look_until([&] { return !said.empty(); }));
  EXPECT_THAT(said, ElementsAre("rank 3 of another host is gone; the other 3 go on"));
  EXPECT_EQ(kept->lose(0), "; the other 2 go on");
}

TEST_F(TwoHosts, ANewcomerIsAdmittedWhenItIsReady) {
  other->lose(2);
  other->expect(2, 77);
  EXPECT_TRUE(look_until([&] { return !said.empty(); }));
  EXPECT_FALSE(other->has_admitted(2, 77));
  store.set(members::ready_key(2, 77), "1");
  EXPECT_TRUE(look_until([&] { return other->has_admitted(2, 77); }));
  EXPECT_EQ(kept->lose(0), "; the other 3 go on");
}

TEST_F(TwoHosts, ALauncherThatIsGoneTakesItsRanksWithIt) {
  EXPECT_TRUE(look_until([&] { return kept->awaits_others(true); })) << "it has come";
  other.reset();
  EXPECT_TRUE(look_until([&] { return !said.empty(); }));
  EXPECT_THAT(said, ElementsAre("the host of ranks 2 to 3 is gone; the other 2 go on"));
  EXPECT_FALSE(kept->awaits_others(true));
  other = report();  // the host comes back
  EXPECT_TRUE(look_until([&] { return other->distant_end().has_value(); }));
  EXPECT_EQ(other->distant_end()->exit_code, 1);
}

TEST_F(TwoHosts, WhatOneEndsWithTheOtherKnows) {
  EXPECT_TRUE(look_until([&] { return kept->awaits_others(true); }));
  other->end(7);
  EXPECT_TRUE(look_until([&] { return kept->distant_end().has_value(); }));
  EXPECT_EQ(kept->distant_end()->exit_code, 7);
  EXPECT_EQ(kept->distant_end()->why, "the host of ranks 2 to 3 has ended with exit code 7");
  other.reset();
  kept->look();
  EXPECT_TRUE(said.empty()) << "it has ended, and is not lost";
}

TEST_F(TwoHosts, AHostWithoutRanksAwaitsTheEnd) {
  EXPECT_TRUE(look_until([&] { return kept->awaits_others(true); }));
  other->lose(2);
  other->lose(3);
  EXPECT_TRUE(look_until([&] { return !kept->awaits_others(true); })) << "nobody there works";
  EXPECT_TRUE(other->awaits_others(/*ended=*/false));
  kept->end(0);
  EXPECT_TRUE(look_until([&] { return !other->awaits_others(false); }));
  EXPECT_EQ(other->distant_end()->exit_code, 0);
}

TEST_F(TwoHosts, AStrangerIsRefusedAndHarmsNobody) {
  const auto stranger = report_to_roster("127.0.0.1", port, 3, 5);
  stranger->lose(3);
  EXPECT_TRUE(look_until([&] {
    stranger->look();
    return stranger->distant_end().has_value();
  }));
  EXPECT_TRUE(said.empty());
  EXPECT_EQ(kept->lose(0), "; the other 3 go on");
}

class ThreeAtLeast : public TwoHosts {
 protected:
  ThreeAtLeast() : TwoHosts(3) {}
};

TEST_F(ThreeAtLeast, TooFewAreTooFewOnAllHosts) {
  EXPECT_TRUE(look_until([&] { return kept->awaits_others(true); }));
  EXPECT_EQ(kept->lose(1), "; the other 3 go on");
  EXPECT_FALSE(kept->is_too_small());
  other->lose(2);
  EXPECT_TRUE(look_until([&] { return kept->is_too_small() && other->is_too_small(); }));
  EXPECT_THAT(said, ElementsAre("rank 2 of another host is gone; the other 2 end, as --least is 3"));
}

}  // namespace
}  // namespace lockstep::launch
