// SPDX-License-Identifier: Apache-2.0
// `lockstep run --survive` over several hosts: what is lost with a rank or with a host is time, and no bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/run/hosts.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kRecipe =
    "train mlp --data synthetic:1x8x8:4:12000 --batch 24 --epochs 2 --replicas 6 --momentum 0.9 --lr 0.05"
    " --augment shift:1 --log-every 25 --check-data --no-curves --copy-every 7 --devices 1";

class SurviveHosts : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GLOO(); }

  /// On each host `n` ranks of a training with a number in the file rankR, in the background, while `events` happen:
  /// `lines N` waits for so many lines of metrics, `event TEXT` for this one in them; `start &` starts them again.
  Ended train_on(int hosts, int n, const std::string& options, const std::string& events) const {
    const std::string script = text(
        "lines() { until [ $(cat run/metrics.jsonl 2>/dev/null | wc -l) -ge $1 ] || ! kill -0 $!; do sleep 0.05; done; "
        "}\n"
        "event() { until grep -qs \"$1\" run/metrics.jsonl || ! kill -0 $!; do sleep 0.05; done; }\n"
        "mkdir -p \"$FOLDER\"/",
        disks, " && cd \"$FOLDER\"/", disks, " || exit 1\nstart() { exec \"$LOCKSTEP\" run -n ", n,
        " --hosts $HOSTS --rank-offset $((HOST * ", n, ")) --survive --timeout 40 ", options,
        " -- sh -c 'echo $$ >rank$RANK.new; mv rank$RANK.new rank$RANK; exec \"$LOCKSTEP\" ", kRecipe,
        " --out run'; }\nstart &\n", events, "\nwait $!; echo host $HOST: code $?");
    return run_on_hosts({"", hosts, {}}, script, {{"FOLDER", folder.file("")}});
  }
  std::string metrics(const std::string& disk = "") const { return read_file(folder.file(disk + "run/metrics.jsonl")); }
  /// Of these hosts, and the bits of one process.
  void expect_a_good_end_and_the_same_bits(const Ended& ended, const std::vector<int>& hosts = {0, 1},
                                           const std::string& disk = "") const {
    for (const int host : hosts) EXPECT_THAT(ended.out, HasSubstr(text("host ", host, ": code 0"))) << ended.err;
    ASSERT_EQ(run_program({"-c", text(built("bin/lockstep"), " ", kRecipe, " --out ", folder.file("alone"))},
                          {.program = "/bin/sh"})
                  .exit_code,
              0);
    EXPECT_EQ(hash_of(folder.file(disk + "run")), hash_of(folder.file("alone"))) << ended.out << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("epoch 1: 12000 of 12000 examples were used, each once"));
  }

  const test::TemporaryFolder folder;
  std::string disks = "";  // of the hosts: one that all have, or "host$HOST"
};

// No connection closes, and no launcher sees a process end.
TEST_F(SurviveHosts, AHostThatVanishesIsMissedAndTheOthersGoOn) {
  const Ended ended = train_on(3, 1, "", "[ $HOST != 2 ] || { lines 4; ip link set eth0 down; }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.out, HasSubstr("host 2: code 1"));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the host of rank 2 is gone; the other 2 go on"),
                               HasSubstr("the launcher on host0 is silent; only 1 of 3 hosts is heard of here")));
  EXPECT_THAT(metrics(), HasSubstr("\"event\":\"rank 2 was lost after step "));
  expect_a_good_end_and_the_same_bits(ended);
}

// With the store, the list of who works, and the process that leads and writes.
TEST_F(SurviveHosts, TheFirstOfThreeHostsVanishesAndTheOthersGoOn) {
  const Ended ended = train_on(3, 1, "", "[ $HOST != 0 ] || { lines 4; ip link set eth0 down; }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.out, HasSubstr("host 0: code 1"));
  EXPECT_THAT(
      ended.err,
      AllOf(HasSubstr("the launcher on host0 is silent; the other 2 go on; this host keeps the list of them now"),
            HasSubstr("the launcher on host0 is silent; the launcher on 10.77.0.2 keeps the list of ranks now"),
            HasSubstr("only 1 of 3 hosts is heard of here")));
  EXPECT_THAT(metrics(), HasSubstr("\"event\":\"rank 0 was lost after step "));
  expect_a_good_end_and_the_same_bits(ended, {1, 2});
}

// The first one, which another has taken the list over from, and one of the others.
TEST_F(SurviveHosts, HostsThatComeBackAreTakenIn) {
  const Ended ended = train_on(3, 1, "",
                               "[ $HOST != 0 ] || { lines 4; kill -9 $!; start & }\n"
                               "[ $HOST != 2 ] || { event 'rank 0 was lost'; kill -9 $!; start & }");
  SKIP_WHERE_FORBIDDEN(ended);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ended.err, HasSubstr(text("the host of rank ", rank, " is back, and its ranks are to take part")));
    EXPECT_THAT(ended.err, ContainsRegex(text("rank ", rank, " \\(process [0-9]+\\) takes part")));
  }
  EXPECT_THAT(ended.err, HasSubstr("the other hosts are at work: 1 rank joins them"));
  EXPECT_THAT(metrics(), HasSubstr(" came in addition"));
  expect_a_good_end_and_the_same_bits(ended, {0, 1, 2});
}

// And it sees no disk of the other one: it makes the run's folder anew.
TEST_F(SurviveHosts, TheFirstOfTwoLaunchersIsKilledAndTheOtherHostGoesOn) {
  disks = "host$HOST";
  const Ended ended = train_on(2, 2, "", "[ $HOST != 0 ] || { lines 4; kill -9 $!; }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.err, HasSubstr("the launcher on host0 is gone; the other 2 go on; this host keeps the list"));
  EXPECT_THAT(metrics("host1/"), HasSubstr("\"event\":\"ranks 0 and 1 were lost after step "));
  expect_a_good_end_and_the_same_bits(ended, {1}, "host1/");
}

TEST_F(SurviveHosts, OneFirstHostAfterTheOtherIsLostDownToTheLast) {
  const Ended ended = train_on(3, 1, "",
                               "[ $HOST != 0 ] || { lines 4; kill -9 $!; }\n"
                               "[ $HOST != 1 ] || { event 'rank 0 was lost'; kill -9 $!; }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the launcher on host0 is gone; the other 2 go on"),
                               HasSubstr("the launcher on 10.77.0.2 is gone; the other 1 go on")));
  EXPECT_THAT(metrics(), HasSubstr("\"event\":\"rank 1 was lost after step "));
  expect_a_good_end_and_the_same_bits(ended, {2});
}

TEST_F(SurviveHosts, RanksOfAnotherHostAreMissedDownToItsLast) {
  const Ended ended = train_on(2, 2, "",
                               "[ $HOST != 1 ] || { lines 4; kill -9 $(cat rank2); event 'rank 2 was lost';"
                               " kill -9 $(cat rank3); }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.err, AllOf(ContainsRegex("rank 2 \\(process [0-9]+\\) was killed by SIGKILL; host0 is told"),
                               HasSubstr("rank 3 of another host is gone; the other 2 go on")));
  expect_a_good_end_and_the_same_bits(ended);
}

// The one that leads and writes.
TEST_F(SurviveHosts, RankZeroIsMissedAndAnotherHostWrites) {
  const Ended ended = train_on(2, 1, "", "[ $HOST != 0 ] || { lines 4; kill -9 $(cat rank0); }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.err, HasSubstr("rank 0 was lost after step "));
  expect_a_good_end_and_the_same_bits(ended);
}

TEST_F(SurviveHosts, ANewProcessTakesALostOnesPlaceOnItsHost) {
  const Ended ended = train_on(2, 1, "--respawn", "[ $HOST != 1 ] || { lines 4; kill -9 $(cat rank1); }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.err,
              AllOf(ContainsRegex("rank 1 \\(process [0-9]+\\) takes part"), HasSubstr("rank 1 came in addition")));
  expect_a_good_end_and_the_same_bits(ended);
}

TEST_F(SurviveHosts, TooFewEndWithACheckpointOnAllHosts) {
  const Ended ended = train_on(2, 2, "--least 4", "[ $HOST != 1 ] || { lines 4; kill -9 $(cat rank3); }");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("host 0: code 75"), HasSubstr("host 1: code 75")));
  EXPECT_THAT(ended.err, HasSubstr("rank 3 of another host is gone; the other 3 end, as --least is 4"));
}

TEST_F(SurviveHosts, ARankThatFailsByItselfEndsTheRunOnAllHosts) {
  const Ended ended = run_on_hosts({"", 2, {}},
                                   "\"$LOCKSTEP\" run -n 1 --hosts $HOSTS --rank-offset $HOST --survive -- "
                                   "sh -c '[ $RANK = 0 ] && exec sleep 60; exit 7'; echo host $HOST: code $?");
  SKIP_WHERE_FORBIDDEN(ended);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("host 0: code 7"), HasSubstr("host 1: code 7")));
  EXPECT_THAT(ended.err, HasSubstr("the host of rank 1 has ended with exit code 7; ending the other 1"));
}

}  // namespace
}  // namespace lockstep::cli
