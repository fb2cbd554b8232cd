// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "launch/survival/host_place.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"
#include "support/processes.h"

namespace lockstep::launch {
namespace {

namespace members = comm::members;
using test::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Less than a launcher's, so that a test is quick, and more than a machine with other work lets a thread wait.
constexpr std::chrono::milliseconds kSilent{600};

// Launchers of hosts with two ranks each, in one process.
class Launchers : public testing::Test {
 protected:
  struct Launcher {
    ServedStore store{0, /*any_host=*/false};
    std::vector<std::string> said{};
    int door = 0;
    std::unique_ptr<Roster> roster{};
    bool looks = true;  // else it is stopped, or far from all others

    // As this host's ranks are told.
    members::Generation newest() { return members::parse(store.get(members::key)); }
  };

  explicit Launchers(int hosts, int least = 1) : all(hosts), least_(least) {
    for (int host = 0; host < hosts; ++host) start(host);
  }
  void start(int host, int asked = 0) { all[host].roster = make_roster(all[host], 2 * host, 2, asked); }
  /// The first keeps the list, unless it asks another one.
  std::unique_ptr<Roster> make_roster(Launcher& launcher, int first, int count, int asked = 0) {
    OwnHost own{.store = launcher.store, .first = first, .count = count, .door = listen_on(0, /*any_host=*/false)};
    const auto say = [&launcher](const std::string& line) { launcher.said.push_back(line); };
    const RosterOptions options{
        .ranks = 2 * static_cast<int>(all.size()), .least = least_, .say = say, .silent = kSilent};
    launcher.door = port_of(own.door);
    if (first == 0) own.address = "127.0.0.1";
    if (first > 0 || asked > 0)
      return share_roster(std::move(own), {"127.0.0.1", "127.0.0.1"}, all[asked].door, options);
    return keep_roster(std::move(own), options);
  }

  // Until this holds, or much too long.
  template <class Holds>
  bool look_until(const Holds& holds) {
    return eventually([&] {
      for (Launcher& launcher : all)
        if (launcher.roster && launcher.looks) launcher.roster->look();
      return holds();
    });
  }
  // The ranks of this host are told that these work.
  bool are_told(int host, const std::vector<int>& ranks) {
    return look_until([&] { return all[host].store.has(members::key) && all[host].newest().ranks == ranks; });
  }
  // Until each knows of all others.
  void meet() {
    int seen = 0;  // what is said in one look is heard in the next
    ASSERT_TRUE(look_until([&] {
      for (Launcher& launcher : all)
        if (!launcher.store.has(members::key)) return false;
      return ++seen > 20;
    }));
  }
  // Its process is killed: the kernel closes what it has open.
  void kill(int host) { all[host].roster.reset(); }
  std::string end_of(int host) {
    const auto end = all[host].roster->distant_end();
    return end ? end->why : "";
  }
  bool ends(int host) {
    return look_until([&] { return all[host].roster->distant_end().has_value(); });
  }

  std::vector<Launcher> all;

 private:
  const int least_;
};

class TwoHosts : public Launchers {
 protected:
  explicit TwoHosts(int least = 1) : Launchers(2, least) {}
  Launcher &kept = all[0], &other = all[1];
};

TEST_F(TwoHosts, ARankThatOneLosesIsNoMemberForTheOther) {
  EXPECT_EQ(other.roster->lose(3), "; 127.0.0.1 is told") << "before there is a connection";
  EXPECT_TRUE(look_until([&] { return !kept.said.empty(); }));
  EXPECT_THAT(kept.said, ElementsAre("rank 3 of another host is gone; the other 3 go on"));
  EXPECT_EQ(kept.roster->lose(0), "; the other 2 go on");
  EXPECT_TRUE(are_told(1, {1, 2}));
}

TEST_F(TwoHosts, ANewcomerIsAdmittedWhenItIsReady) {
  other.roster->lose(2);
  other.roster->expect(2, 77);
  EXPECT_TRUE(look_until([&] { return !kept.said.empty(); }));
  EXPECT_FALSE(other.roster->has_admitted(2, 77));
  other.store.set(members::ready_key(2, 77), "1");
  EXPECT_TRUE(look_until([&] { return other.roster->has_admitted(2, 77); }));
  EXPECT_EQ(kept.roster->lose(0), "; the other 3 go on");
}

TEST_F(TwoHosts, ThatAllIsDoneIsKnownOnAllHosts) {
  meet();
  other.store.set(members::done_key, "1");
  EXPECT_TRUE(look_until([&] { return kept.store.has(members::done_key); }));
}

TEST_F(TwoHosts, AllMeetAgainWhereAGenerationHasComeApart) {
  meet();
  const int number = kept.newest().number;
  const auto both_have = [&](int wanted) {
    return look_until([&] { return kept.newest().number == wanted && other.newest().number == wanted; });
  };
  for (const int host : {0, 1}) all[host].store.set(members::again_key(number), "1");
  EXPECT_TRUE(both_have(number + 1));
  other.store.set(members::again_key(number + 1), "1");
  EXPECT_TRUE(both_have(number + 2));
  EXPECT_THAT(kept.newest().ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(kept.said.size(), 2U);
}

TEST_F(TwoHosts, ALauncherThatIsGoneTakesItsRanksWithIt) {
  meet();
  kill(1);
  EXPECT_TRUE(are_told(0, {0, 1}));
  EXPECT_THAT(kept.said, ElementsAre("the host of ranks 2 to 3 is gone; the other 2 go on"));
  EXPECT_FALSE(kept.roster->awaits_others(true));
}

TEST_F(TwoHosts, AHostThatComesBackIsTakenInWithItsRanksAsNewcomers) {
  meet();
  kill(1);
  ASSERT_TRUE(are_told(0, {0, 1}));
  start(1);
  ASSERT_TRUE(look_until([&] { return other.roster->is_late(); }));
  EXPECT_EQ(kept.said.back(), "the host of ranks 2 to 3 is back, and its ranks are to take part");
  EXPECT_THAT(kept.newest().ranks, ElementsAre(0, 1)) << "they are not ready";
  other.roster->expect(2, 77);
  other.roster->expect(3, 78);
  other.store.set(members::ready_key(3, 78), "1");
  EXPECT_TRUE(are_told(0, {0, 1, 3}));
  EXPECT_TRUE(are_told(1, {0, 1, 3}));
  EXPECT_FALSE(other.roster->has_admitted(2, 77));
  EXPECT_TRUE(other.roster->has_admitted(3, 78));
  kill(0);
  other.store.set(members::ready_key(2, 77), "1");
  EXPECT_TRUE(are_told(1, {2, 3})) << "it is a host as any other";
}

TEST_F(TwoHosts, WhatOneEndsWithTheOtherKnows) {
  meet();
  other.roster->end(7);
  EXPECT_TRUE(ends(0));
  EXPECT_EQ(kept.roster->distant_end()->exit_code, 7);
  EXPECT_EQ(end_of(0), "the host of ranks 2 to 3 has ended with exit code 7");
  kill(1);
  kept.roster->look();
  EXPECT_THAT(kept.said, IsEmpty()) << "it has ended, and is not lost";
}

TEST_F(TwoHosts, AHostWithoutRanksAwaitsTheEnd) {
  meet();
  other.roster->lose(2);
  other.roster->lose(3);
  EXPECT_TRUE(look_until([&] { return !kept.roster->awaits_others(true); })) << "nobody there works";
  EXPECT_TRUE(other.roster->awaits_others(/*ended=*/false));
  kept.roster->end(0);
  EXPECT_TRUE(look_until([&] { return !other.roster->awaits_others(false); }));
  EXPECT_EQ(other.roster->distant_end()->exit_code, 0);
}

TEST_F(TwoHosts, AStrangerIsRefusedAndHarmsNobody) {
  Launcher strange;
  const auto stranger = make_roster(strange, 3, 5);
  stranger->lose(3);
  EXPECT_TRUE(look_until([&] {
    stranger->look();
    return stranger->distant_end().has_value();
  }));
  EXPECT_THAT(kept.said, IsEmpty());
  EXPECT_EQ(kept.roster->lose(0), "; the other 3 go on");
}

TEST_F(TwoHosts, TheOtherGoesOnWhereTheFirstLauncherIsKilled) {
  meet();
  const int before = other.newest().number;
  kill(0);
  EXPECT_TRUE(are_told(1, {2, 3}));
  EXPECT_GT(other.newest().number, before);
  EXPECT_EQ(other.newest().store_host, "127.0.0.1");
  EXPECT_EQ(other.newest().store_port, other.store.port());
  EXPECT_THAT(other.said, ElementsAre("the launcher on 127.0.0.1 is gone; the other 2 go on; this host keeps the list "
                                      "of them now"));
  EXPECT_EQ(other.roster->lose(3), "; the other 1 go on");
}

// Which of the two was cut off neither can know.
TEST_F(TwoHosts, OfTwoThatHearNothingOfEachOtherTheFirstGoesOn) {
  meet();
  other.looks = false;
  EXPECT_TRUE(are_told(0, {0, 1}));
  kept.looks = false;
  other.looks = true;
  EXPECT_TRUE(ends(1));
}

TEST_F(TwoHosts, TheOtherEndsWhereTheFirstIsSilent) {
  meet();
  kept.looks = false;
  EXPECT_TRUE(ends(1));
  EXPECT_THAT(end_of(1), HasSubstr("is silent; only 1 of 2 hosts is heard of here"));
  EXPECT_EQ(other.roster->distant_end()->exit_code, 1);
  kept.looks = true;
  EXPECT_TRUE(are_told(0, {0, 1})) << "and the first goes on, if it was it that lives";
}

class ThreeHosts : public Launchers {
 protected:
  ThreeHosts() : Launchers(3) {}
};

TEST_F(ThreeHosts, TheSecondKeepsTheListWhereTheFirstIsGone) {
  meet();
  all[2].roster->lose(5);
  ASSERT_TRUE(are_told(1, {0, 1, 2, 3, 4}));
  kill(0);
  EXPECT_TRUE(are_told(1, {2, 3, 4}));
  EXPECT_TRUE(are_told(2, {2, 3, 4}));
  EXPECT_EQ(all[2].newest().store_port, all[1].store.port());
  EXPECT_THAT(all[2].said,
              ElementsAre("the launcher on 127.0.0.1 is gone; the launcher on 127.0.0.1 keeps the list of ranks now"));
  all[2].roster->lose(4);
  EXPECT_TRUE(are_told(1, {2, 3}));
}

TEST_F(ThreeHosts, TheFirstComesBackAndBeginsNoListOfItsOwn) {
  meet();
  kill(0);
  start(0, /*asked=*/2);
  EXPECT_TRUE(look_until([&] { return all[1].newest().ranks.size() == 4; }));
  for (int look = 0; look < 20; ++look) look_until([] { return true; });
  EXPECT_FALSE(all[0].roster->is_late()) << "this one does not keep the list, and says that another does";
  start(0, /*asked=*/1);
  ASSERT_TRUE(look_until([&] { return all[0].roster->is_late(); }));
  all[0].roster->expect(0, 77);
  all[0].store.set(members::ready_key(0, 77), "1");
  EXPECT_TRUE(are_told(2, {0, 2, 3, 4, 5}));
  EXPECT_TRUE(are_told(0, {0, 2, 3, 4, 5}));
  EXPECT_EQ(all[0].newest().store_port, all[1].store.port());
}

TEST_F(ThreeHosts, TheFirstBeginsTheListWhereNobodyElseHasOne) {
  for (int host : {0, 1, 2}) kill(host);
  start(1);
  start(0, /*asked=*/1);
  all[0].roster->lose(1);
  EXPECT_TRUE(are_told(0, {0, 2, 3, 4, 5}));
  EXPECT_FALSE(all[0].roster->is_late());
}

TEST_F(ThreeHosts, OneAfterTheOtherKeepsTheList) {
  meet();
  kill(0);
  ASSERT_TRUE(are_told(2, {2, 3, 4, 5}));
  kill(1);
  EXPECT_TRUE(are_told(2, {4, 5}));
}

TEST_F(ThreeHosts, TheLastGoesOnWhereTwoLaunchersAreKilledAtOnce) {
  meet();
  kill(0);
  kill(1);
  EXPECT_TRUE(are_told(2, {4, 5}));
}

// What the lost keeper was told, and nobody else.
TEST_F(ThreeHosts, ARankThatIsLostWithTheKeeperIsNoMember) {
  meet();
  all[2].roster->lose(5);
  all[2].roster->expect(5, 77);
  all[2].store.set(members::ready_key(5, 77), "1");
  all[1].roster->lose(3);
  kill(0);
  EXPECT_TRUE(look_until([&] { return all[2].roster->has_admitted(5, 77); }));
  EXPECT_TRUE(are_told(1, {2, 4, 5}));
}

TEST_F(ThreeHosts, TwoGoOnWhereTheFirstIsSilentAndItEndsWhenItHearsAgain) {
  meet();
  all[0].looks = false;
  EXPECT_TRUE(are_told(1, {2, 3, 4, 5}));
  EXPECT_TRUE(are_told(2, {2, 3, 4, 5}));
  all[0].looks = true;
  EXPECT_TRUE(ends(0));
  EXPECT_THAT(end_of(0), HasSubstr("only 1 of 3 hosts is heard of here"));
  EXPECT_EQ(all[0].newest().ranks.size(), 6) << "its ranks were not told to go on";
}

TEST_F(ThreeHosts, OneThatIsSilentIsGivenUp) {
  meet();
  all[1].looks = false;
  EXPECT_TRUE(are_told(0, {0, 1, 4, 5}));
  EXPECT_TRUE(are_told(2, {0, 1, 4, 5}));
  all[1].looks = true;
  EXPECT_TRUE(ends(1));
  EXPECT_THAT(end_of(1), HasSubstr("has given this host up"));
}

// Two that were lost together may be together.
TEST_F(ThreeHosts, OneOfThreeEndsWhereItHearsNothingOfTheOthers) {
  meet();
  all[0].looks = all[1].looks = false;
  EXPECT_TRUE(ends(2));
  EXPECT_THAT(end_of(2), HasSubstr("only 1 of 3 hosts is heard of here"));
  all[2].looks = false;
  all[0].looks = true;
  EXPECT_TRUE(ends(0));
  EXPECT_GT(all[0].newest().ranks.size(), 2) << "its ranks were not told to go on alone";
}

TEST_F(ThreeHosts, WhereNotAllHaveComeTheFirstIsNeeded) {
  kill(2);
  ASSERT_TRUE(look_until([&] { return all[1].store.has(members::key); }));
  kill(0);
  EXPECT_TRUE(ends(1));
  EXPECT_THAT(end_of(1), HasSubstr("not all hosts had come yet"));
}

TEST(KeepingTheList, MoreThanHalfGoOnAndHalfWithTheKeeper) {
  EXPECT_TRUE(may_go_on(1, 0, false));
  EXPECT_FALSE(may_go_on(1, 1, false));
  EXPECT_TRUE(may_go_on(1, 1, true));
  EXPECT_FALSE(may_go_on(1, 2, true));
  EXPECT_TRUE(may_go_on(2, 1, false));
  for (int hosts = 2; hosts < 9; ++hosts)
    for (int here = 1; here < hosts; ++here)
      EXPECT_NE(may_go_on(here, hosts - here, true), may_go_on(hosts - here, here, false)) << here << " of " << hosts;
}

TEST(KeepingTheList, HostsAreReadAsTheyWereSaid) {
  const KnownHosts known{.places = {{2, 2, 29512, "10.0.0.2"}, {4, 1, 40000, "fd77::3"}}, .silent = 1};
  EXPECT_EQ(to_text(known), "1 2 2 29512 10.0.0.2 4 1 40000 fd77::3");
  EXPECT_EQ(to_text(known_hosts_of(to_text(known))), to_text(known));
}

class ThreeAtLeast : public TwoHosts {
 protected:
  ThreeAtLeast() : TwoHosts(3) {}
};

TEST_F(ThreeAtLeast, TooFewAreTooFewOnAllHosts) {
  meet();
  EXPECT_EQ(kept.roster->lose(1), "; the other 3 go on");
  EXPECT_FALSE(kept.roster->is_too_small());
  other.roster->lose(2);
  EXPECT_TRUE(look_until([&] { return kept.roster->is_too_small() && other.roster->is_too_small(); }));
  EXPECT_THAT(kept.said, ElementsAre("rank 2 of another host is gone; the other 2 end, as --least is 3"));
}

}  // namespace
}  // namespace lockstep::launch
