// SPDX-License-Identifier: Apache-2.0
// What is lost when processes are killed, or asked to make room: time, and no bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/program.h"
#include "cli/run/connections.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Some seconds of steps; momentum, sums of an epoch and a ledger, so that more than weights must move back.
std::string recipe(int epochs = 2) {
  return text("train mlp --data synthetic:1x8x8:4:12000 --batch 24 --epochs ", epochs,
              " --replicas 6 --momentum 0.9 --lr 0.05 --augment shift:1 --log-every 25 --check-data --no-curves"
              " --copy-every 7 --devices 1");
}

const std::string& expected() {
  static const std::string hash = [] {
    const TemporaryFolder folder;
    const std::string words = built("bin/lockstep") + " " + recipe() + " --out " + folder.file("run");
    EXPECT_EQ(run_program({"-c", words}, {.program = "/bin/sh"}).exit_code, 0);
    return hash_of(folder.file("run"));
  }();
  return hash;
}

class Survive : public testing::Test {
 protected:
  void SetUp() override {
    if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  }

  // Each rank leaves its process's number in a file of its name.
  Words start(const Words& run, const std::string& more = "", int epochs = 2) const {
    return start_program(run, built("bin/lockstep") + " " + recipe(epochs) + " --out " + folder.file("run") + more);
  }
  Words start_program(const Words& run, const std::string& program) const {
    return run_script(run, "echo $$ > " + folder.file("rank$RANK.new") + "; mv " + folder.file("rank$RANK.new") + " " +
                               folder.file("rank$RANK") + "; exec " + program);
  }
  pid_t process_of(int rank) const {
    pid_t process = 0;
    std::ifstream(folder.file(text("rank", rank))) >> process;
    return process;
  }
  // A line is written each 25 steps.
  int64_t lines() const {
    const auto file = folder.file("run/metrics.jsonl");
    return std::filesystem::exists(file) ? std::ranges::count(read_file(file), '\n') : 0;
  }
  void wait_for_lines(int64_t count) const {
    ASSERT_TRUE(eventually([&] { return lines() >= count; })) << lines();
  }
  void wait_for_event(const std::string& event) const {
    ASSERT_TRUE(eventually([&] { return metrics().find(event) != std::string::npos; })) << metrics();
  }
  std::string metrics() const { return read_file(folder.file("run/metrics.jsonl")); }

  const TemporaryFolder folder;
};

class SurviveRank : public Survive, public testing::WithParamInterface<int> {};

TEST_P(SurviveRank, TheOthersGoOnInPlaceToTheSameBits) {
  Program program(start({"-n", "3", "--survive"}));
  wait_for_lines(4);
  kill(process_of(GetParam()), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(text("lockstep run: rank ", GetParam())));
  EXPECT_THAT(ended.err, HasSubstr("was killed by SIGKILL; the other 2 go on"));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
  EXPECT_THAT(ended.err, AllOf(HasSubstr(text("rank ", GetParam(), " was lost after step ")),
                               HasSubstr("epoch 1: 12000 of 12000 examples were used, each once")));
  EXPECT_THAT(metrics(), HasSubstr(text("\"event\":\"rank ", GetParam(), " was lost after step ")));
  EXPECT_THAT(read_file(folder.file("run/summary.json")), HasSubstr(" was lost after step "));
}

INSTANTIATE_TEST_SUITE_P(Of, SurviveRank, testing::Values(0, 2));

TEST_F(Survive, DownToOneProcess) {
  Program program(start({"-n", "3", "--survive"}));
  wait_for_lines(3);
  kill(process_of(1), SIGKILL);
  wait_for_event("rank 1 was lost");
  kill(process_of(0), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("; 1 process goes on"));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, OneThatIsStoppedIsLost) {
  Program program(start({"-n", "3", "--survive"}));
  wait_for_lines(3);
  kill(process_of(0), SIGSTOP);  // the one that writes
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("has been stopped for 2 s while others wait for it: killed"),
                               HasSubstr("was killed by SIGKILL; the other 2 go on")));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, WhoLosesConnectionsAndNoProcessMeetsAgain) {
  Program program(start({"-n", "3", "--survive"}));
  wait_for_lines(3);
  const int lost = lose_connections(process_of(1));
  const Ended ended = program.wait();
  if (lost == 0) GTEST_SKIP() << "this kernel lets nobody at another process's connections";
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("ranks have lost each other, and none has ended: all meet again"),
                               HasSubstr("the processes met again after step "), Not(HasSubstr("was lost"))));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, OneThatIsContinuedInTimeIsNotLost) {
  Program program(start({"-n", "2", "--survive"}));
  wait_for_lines(3);
  kill(process_of(1), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(process_of(1), SIGCONT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("killed")));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, AuditsChangeNoBitAndEndWithTheLastButOne) {
  Program program(start({"-n", "2", "--survive"}, " --audit 3"));
  wait_for_lines(3);
  kill(process_of(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("one device is left, so that gradients are not audited any more"));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, TwoLostAtOnce) {
  Program program(start({"-n", "4", "--survive"}));
  wait_for_lines(3);
  for (const int rank : {0, 3}) kill(process_of(rank), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, ANewProcessTakesTheLostOnesPlace) {
  Program program(start({"-n", "2", "--survive", "--respawn"}, "", 5));
  wait_for_lines(3);
  const pid_t first = process_of(0);
  kill(first, SIGKILL);
  wait_for_event("rank 0 came in addition");
  EXPECT_NE(process_of(0), first);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("takes part"));
  EXPECT_THAT(ended.err, HasSubstr("; 2 processes go on"));
  const TemporaryFolder reference;
  expect_success(
      {"train", "mlp", "--config", folder.file("run/config.toml"), "--devices", "2", "--out", reference.file("run")});
  EXPECT_EQ(hash_of(folder.file("run")), hash_of(reference.file("run")));
}

TEST_F(Survive, ANewProcessThatComesTooLateEndsWithTheOthers) {
  const std::string wait =
      "[ -z $LOCKSTEP_NEWCOMER ] || while [ ! -e " + folder.file("run/weights.pt") + " ]; do sleep 0.02; done; ";
  Program program(run_script({"-n", "3", "--survive", "--respawn", "--timeout", "15"},
                             "echo $$ > " + folder.file("rank$RANK") + "; " + wait + "exec " + built("bin/lockstep") +
                                 " " + recipe() + " --out " + folder.file("run")));
  wait_for_lines(3);
  kill(process_of(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("takes part"));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

// The only one that has a copy is stopped until it is lost, while a new process waits for it.
TEST_F(Survive, WithoutACopyTheNewestCheckpointCounts) {
  Program program(start({"-n", "2", "--survive", "--respawn"}, " --save-every 20"));
  wait_for_lines(4);
  const pid_t first = process_of(0), last = process_of(1);
  kill(first, SIGKILL);
  for (int pause = 0; pause < 16; ++pause) {  // for less than the 2 s after which it is given up
    kill(last, SIGCONT);
    kill(last, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("going on after step"));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, TooFewEndWithACheckpoint) {
  Program program(start({"-n", "3", "--survive", "--least", "3"}));
  wait_for_lines(3);
  kill(process_of(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the other 2 end, as --least is 3"));
  EXPECT_THAT(ended.out, HasSubstr("stopped; go on with: lockstep train --resume " + folder.file("run")));
  expect_success({"train", "--resume", folder.file("run"), "--devices", "2"});
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, ARankThatFailsByItselfEndsTheRun) {
  const Ended ended = run_program(run_script({"-n", "2", "--survive"}, "[ $RANK = 0 ] && exit 3; sleep 60"));
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, HasSubstr("rank 0"));
}

TEST_F(Survive, AFailedRunIsStartedAgainFromItsCheckpoint) {
  Program program(start({"-n", "2", "--restarts", "1"}, " --save-every 20"));
  wait_for_lines(4);
  kill(process_of(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("starting again (1 of 1)"));
  EXPECT_THAT(ended.out, HasSubstr("going on after step"));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST_F(Survive, ARunThatFailsAgainAndAgainEnds) {
  const Ended ended = run_program(run_script(
      {"-n", "1", "--restarts", "2"}, "echo start $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; exit 4"));
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_EQ(ended.out, "[0] start 0 of 2\n[0] start 1 of 2\n[0] start 2 of 2\n");
}

// What a process has of the network is lost with it. Three can't be two copies of two parts, so each has all of it.
TEST_F(Survive, APartOfTheNetworkIsLostAndComesBack) {
  Program program(start({"-n", "4", "--survive", "--respawn"}, " --split p2", 3));
  wait_for_lines(3);
  kill(process_of(1), SIGKILL);
  wait_for_event("rank 1 came in addition");
  kill(process_of(2), SIGKILL);
  wait_for_event("rank 2 came in addition");
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("the network in 2 parts, a process each"));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("; 3 processes go on"), HasSubstr("; 4 processes go on")));
  const TemporaryFolder reference;
  expect_success({"train", "mlp", "--config", folder.file("run/config.toml"), "--devices", "2", "--split", "data",
                  "--out", reference.file("run")});
  EXPECT_EQ(hash_of(folder.file("run")), hash_of(reference.file("run")));
}

// A program with a loop of its own, which says at the end what it has.
class OwnLoop : public Survive {
 protected:
  Words start_loop(const Words& run, int steps) const {
    return start_program(run, text(built("examples/survive"), " ", steps));
  }
  static void expect_undisturbed_end(const Ended& ended, int steps) {
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    const Ended whole = run_program({"-c", text(built("examples/survive"), " ", steps)}, {.program = "/bin/sh"});
    const std::string end = lines_of(whole.out).back();
    EXPECT_THAT(end, ContainsRegex(text("^", 48 * steps, " examples, weights [0-9a-f]+")));
    EXPECT_THAT(ended.out, HasSubstr("] " + end));
  }
};

class OwnLoopWithoutRank : public OwnLoop, public testing::WithParamInterface<int> {};

TEST_P(OwnLoopWithoutRank, GoesOnToTheSameBits) {
  Program program(start_loop({"-n", "3", "--survive"}, 600));
  program.wait_for_output("step 75:");
  kill(process_of(GetParam()), SIGKILL);
  const Ended ended = program.wait();
  expect_undisturbed_end(ended, 600);
  EXPECT_THAT(ended.err, ContainsRegex(text("rank ", GetParam(), " was lost after step [0-9]+; 2 processes go on")));
}

INSTANTIATE_TEST_SUITE_P(Of, OwnLoopWithoutRank, testing::Values(0, 2));

TEST_F(OwnLoop, TakesANewProcessInBetweenSteps) {
  Program program(start_loop({"-n", "2", "--survive", "--respawn"}, 1500));
  program.wait_for_output("step 75:");
  const pid_t first = process_of(0);
  kill(first, SIGKILL);
  const Ended ended = program.wait();
  expect_undisturbed_end(ended, 1500);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("; the other 1 go on"), HasSubstr("takes part")));
  EXPECT_THAT(ended.err, HasSubstr("rank 0 came in addition"));
  EXPECT_NE(process_of(0), first);
}

TEST_F(OwnLoop, EndsWhereTooFewAreLeft) {
  Program program(start_loop({"-n", "3", "--survive", "--least", "3"}, 600));
  program.wait_for_output("step 75:");
  kill(process_of(1), SIGKILL);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("2 processes are left, fewer than --least of lockstep run"));
}

TEST(Preemption, ASignalAsksForACheckpointAndTrainingGoesOn) {
  const TemporaryFolder folder;
  Program program({"-c", "exec " + built("bin/lockstep") + " " + recipe() + " --out " + folder.file("run")},
                  {.program = "/bin/sh"});
  const auto file = folder.file("run/metrics.jsonl"), checkpoint = folder.file("run/last.pt");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file) && !read_file(file).empty(); }));
  EXPECT_FALSE(std::filesystem::exists(checkpoint));
  program.send(SIGUSR1);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(checkpoint); }));
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST(Preemption, SigUsr2EndsWithACheckpoint) {
  const TemporaryFolder folder;
  Program program({"-c", "exec " + built("bin/lockstep") + " " + recipe() + " --out " + folder.file("run")},
                  {.program = "/bin/sh"});
  const auto file = folder.file("run/metrics.jsonl");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file) && !read_file(file).empty(); }));
  program.send(SIGUSR2);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGUSR2);
  EXPECT_TRUE(std::filesystem::exists(folder.file("run/last.pt")));
}

TEST(SurviveOptions, ThatMakeNoSenseAreRefused) {
  for (const auto& [words, why] :
       {std::pair(Words{"--respawn"}, "expected --survive too"),
        {Words{"--least", "2"}, "expected --survive too"},
        {Words{"--survive", "--least", "3"}, "expected 1 to 2"},
        {Words{"--restarts", "-1"}, "expected 0 or more"},
        {Words{"--survive", "--hosts", "a,b", "--rank-offset", "0", "--port", "65535"}, "expected 1 to 65534"}}) {
    const Ended ended = run_program(run_script(Words{"-n", "2"} + words, "true"));
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, HasSubstr(why));
  }
}

// Parts hold weights that nobody else has, so the run ends; the process that stopped is named by all others.
class LostPart : public Survive, public testing::WithParamInterface<int> {};

TEST_P(LostPart, IsNamedByAllOthersWithinTheTimeout) {
  Program program(start({"-n", "3", "--timeout", "6"}, " --split p3 --set hidden=32,32,32", /*epochs=*/1000));
  wait_for_lines(2);
  kill(process_of(1), GetParam());
  const Ended ended = program.wait();
  EXPECT_NE(ended.exit_code, 0);
  for (const int rank : {0, 2})
    EXPECT_THAT(ended.err, ContainsRegex(text("\\[", rank, "\\] lockstep: .*rank 1 died, stalled or did not come")));
  for (const auto& line : lines_of(ended.err))
    if (const size_t after = line.find("did not come (after "); after != std::string::npos) {
      EXPECT_LT(std::stod(line.substr(after + 20)), 12) << line;
    }
}
INSTANTIATE_TEST_SUITE_P(, LostPart, testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "Killed" : "Stopped"; });

}  // namespace
}  // namespace lockstep::cli
