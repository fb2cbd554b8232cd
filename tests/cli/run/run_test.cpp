// SPDX-License-Identifier: Apache-2.0
// `lockstep run` as its users see it: real processes, started by the built program.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <set>
#include <thread>

#include "cli/program.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

std::vector<pid_t> pids_in(const std::string& text, const std::string& after) {
  std::vector<pid_t> pids;
  for (const auto& line : lines_of(text)) {
    const size_t at = line.find(after);
    if (at != std::string::npos) pids.push_back(std::stoi(line.substr(at + after.size())));
  }
  return pids;
}

TEST(Run, TellsEachRankItsPlace) {
  const auto ended =
      run_program(run_script({"-n", "3", "--timeout", "7.5"},
                             "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at "
                             "$MASTER_ADDR, $LOCKSTEP_TIMEOUT s, store ${TORCHELASTIC_USE_AGENT_STORE}"));
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.err, IsEmpty());
  EXPECT_THAT(lines_of(ended.out), UnorderedElementsAre("[0] 0 of 3, 0 of 3 at 127.0.0.1, 7.5 s, store True",
                                                        "[1] 1 of 3, 1 of 3 at 127.0.0.1, 7.5 s, store True",
                                                        "[2] 2 of 3, 2 of 3 at 127.0.0.1, 7.5 s, store True"));
}

TEST(Run, SharesTheCoresAmongItsRanksUnlessToldOtherwise) {
  const auto threads_of = [](const std::string& ranks, const std::string& variable) {
    return run_program(run_script({"-n", ranks}, "echo $OMP_NUM_THREADS"),
                       {.environment = {{"OMP_NUM_THREADS", variable}}})
        .out;
  };
  EXPECT_EQ(threads_of("1", ""), text("[0] ", cpu_info().cores, "\n"));
  EXPECT_THAT(threads_of("2", ""), HasSubstr(text("[1] ", std::max(1, cpu_info().cores / 2), "\n")));
  EXPECT_EQ(threads_of("1", "5"), "[0] 5\n");
}

TEST(Run, TellsTheRanksOfASecondHostTheirPlace) {
  const auto ended = run_program(
      run_script({"-n", "2", "--hosts", "first,second", "--rank-offset", "2", "--port", "4567"},
                 "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"));
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(lines_of(ended.out),
              UnorderedElementsAre("[2] 2 of 4, 0 of 2 at first:4567", "[3] 3 of 4, 1 of 2 at first:4567"));
}

TEST(Run, PrefixesOutputAndErrorsLineByLine) {
  const auto ended =
      run_program(run_script({"-n", "2"}, "printf 'one '; sleep 0.2; printf 'line\\n\\n'; echo oops >&2; printf tail"));
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(lines_of(ended.out),
              UnorderedElementsAre("[0] one line", "[0] ", "[0] tail", "[1] one line", "[1] ", "[1] tail"));
  EXPECT_THAT(lines_of(ended.err), UnorderedElementsAre("[0] oops", "[1] oops"));
}

TEST(Run, ShowsALineThatIsDrawnOverAsItEnds) {
  EXPECT_EQ(run_program(run_script({"-n", "1"}, "printf ' 10%%\\r 50%%\\r100%%\\nplain\\r\\n'")).out,
            "[0] 100%\n[0] plain\n");
}

TEST(Run, NeverMixesLinesOfTwoRanks) {
  const auto ended = run_program(run_script(
      {"-n", "4"}, "i=0; while [ $i -lt 500 ]; do printf $RANK$RANK$RANK; printf \"$RANK $i\\n\"; i=$((i+1)); done"));
  EXPECT_EQ(ended.exit_code, 0);
  std::map<char, int> next;
  for (const auto& line : lines_of(ended.out)) {
    const char rank = line.at(1);
    ASSERT_EQ(line, text("[", rank, "] ", std::string(4, rank), " ", next[rank]++));
  }
  for (char rank : {'0', '1', '2', '3'}) EXPECT_EQ(next[rank], 500);
}

TEST(Run, PassesEveryByteOnWithoutPrefix) {
  EXPECT_EQ(run_program(run_script({"-n", "1", "--no-prefix"}, "printf 'a\\rb'; printf c >&2")).out, "a\rb");
}

TEST(Run, GivesStandardInputToRankZeroOnly) {
  const auto ended = run_program(run_script({"-n", "3"}, "wc -c"), {.input = "seventeen letters"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(lines_of(ended.out), UnorderedElementsAre("[0] 17", "[1] 0", "[2] 0"));
}

TEST(Run, EndsTheOthersWhenOneFailsAndReturnsItsExitCode) {
  const auto ended = run_program(run_script({"-n", "3"}, "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 1000"));
  EXPECT_EQ(ended.exit_code, 7);
  EXPECT_THAT(ended.err, testing::MatchesRegex(
                             "lockstep run: rank 1 .process [0-9]+. ended with exit code 7; ending the other 2\n"));
}

TEST(Run, NamesTheSignalThatKilledARank) {
  const auto ended = run_program(run_script({"-n", "2"}, "if [ $RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 1000"));
  EXPECT_EQ(ended.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(ended.err, HasSubstr("was killed by SIGSEGV (Segmentation fault); ending the other 1"));
}

TEST(Run, KillsRanksThatIgnoreTheRequestToEndAfterTheGrace) {
  const auto ended = run_program(
      run_script({"-n", "2", "--grace", "0.3"},
                 "if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi; trap '' TERM; while :; do sleep 0.1; done"));
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, HasSubstr("1 still ran 0.3 s later: killed"));
}

TEST(Run, EndsAStoppedRankToo) {
  const auto ended =
      run_program(run_script({"-n", "2"}, "if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi; kill -STOP $$"));
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, Not(HasSubstr("still ran")));  // SIGTERM was enough
}

TEST(Run, PassesASignalOnOnceAndWaitsForRanksThatTakeTheirTime) {
  Program program(
      run_script({"-n", "2", "--grace", "0.1"},
                 "trap 'echo saving; sleep 0.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  program.wait_for_output("[0] ready");
  program.wait_for_output("[1] ready");
  program.send(SIGTERM);
  program.send(SIGTERM);  // what `timeout` does
  const auto ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(lines_of(ended.out),
              UnorderedElementsAre("[0] ready", "[1] ready", "[0] saving", "[1] saving", "[0] saved", "[1] saved"));
  EXPECT_THAT(ended.err, StartsWith("lockstep run: SIGTERM passed on to 2 ranks"));
}

TEST(Run, EndsWith130OnAnInterrupt) {
  Program program(run_script({"-n", "2"}, "echo ready; exec sleep 1000"));
  program.wait_for_output("[0] ready");
  program.wait_for_output("[1] ready");
  program.send(SIGINT);
  const auto ended = program.wait();
  EXPECT_EQ(ended.exit_code, 130);
  EXPECT_THAT(lines_of(ended.err), ElementsAre("lockstep run: SIGINT passed on to 2 ranks; a second one kills"));
}

TEST(Run, KillsOnASecondSignal) {
  Program program(run_script({"-n", "2"}, "trap '' INT; echo ready; while :; do sleep 0.1; done"));
  program.wait_for_output("[0] ready");
  program.wait_for_output("[1] ready");
  program.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  program.send(SIGINT);
  EXPECT_EQ(program.wait().exit_code, 130);
}

TEST(Run, PassesUserSignalsOn) {
  Program program(run_script({"-n", "1"}, "trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.05; done"));
  program.wait_for_output("[0] ready");
  program.send(SIGUSR1);
  const auto ended = program.wait();
  EXPECT_EQ(ended.exit_code, 5);
  EXPECT_THAT(ended.out, HasSubstr("[0] got it"));
}

TEST(Run, KeepsIgnoringWhatItWasToldToIgnore) {
  Program program(run_script({"-n", "1"}, "echo ready; sleep 0.5; echo done"), {.ignored_signals = {SIGHUP}});
  program.wait_for_output("[0] ready");
  program.send(SIGHUP);
  const auto ended = program.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr("[0] done"));
}

TEST(Run, LeavesNothingBehindWhenItIsKilled) {
  Program program(run_script(
      {"-n", "2"}, "setsid sleep 1000 & echo pid $!; (sleep 1000 & echo pid $!); echo pid $$; exec sleep 1000"));
  program.wait_for_output("pid", 6);
  const auto pids = pids_in(program.out(), "pid ");
  ASSERT_EQ(pids.size(), 6u);
  for (pid_t process : pids) EXPECT_TRUE(is_alive(process));
  program.send(SIGKILL);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
  for (pid_t process : pids) EXPECT_TRUE(eventually([&] { return !is_alive(process); })) << process;
}

TEST(Run, KillsWhatItsRanksLeaveBehindAndSaysSo) {
  const auto ended = run_program(run_script({"-n", "2"}, "setsid sleep 1000 & echo pid $!"));
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.err, "lockstep run: the ranks left 2 processes behind: killed\n");
  for (pid_t process : pids_in(ended.out, "pid ")) EXPECT_FALSE(is_alive(process));
}

TEST(Run, EndsWhenNobodyReadsItsOutput) {
  Program program(run_script({"-n", "2"}, "exec yes"));
  program.wait_for_output("[0] y");
  program.stop_reading();
  EXPECT_EQ(program.wait().exit_code, 128 + SIGPIPE);
}

TEST(Run, HearsSignalsWhileItsReaderPauses) {
  Program program(run_script({"-n", "2"}, "echo ready >&2; exec yes"));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // the pipe to us fills up: nobody reads it
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGTERM);
}

TEST(Run, SaysWhenThereIsNoSuchProgram) {
  const auto missing = run_program({"run", "-n", "2", "--", "no-such-program"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_EQ(missing.err, "lockstep: run: program 'no-such-program' was not found, expected a path or a name on PATH\n");
  const auto forbidden = run_program({"run", "-n", "2", "--", "/dev/null"});
  EXPECT_EQ(forbidden.exit_code, 126);
  EXPECT_EQ(forbidden.err, "lockstep: run: program '/dev/null' can't be run: Permission denied\n");
}

TEST(Run, TwoRunsAtOnceHaveStoresOfTheirOwn) {
  const auto script = run_script({"-n", "2"}, "echo at $MASTER_PORT $LOCKSTEP_RUN; exec sleep 1000");
  Program first(script);
  first.wait_for_output("at ", 2);
  Program second(script);
  second.wait_for_output("at ", 2);
  std::set<std::string> stores;
  for (Program* program : {&first, &second}) {
    program->send(SIGTERM);
    for (const auto& line : lines_of(program->wait().out)) stores.insert(line.substr(4));
  }
  EXPECT_EQ(stores.size(), 2u);
}

TEST(Run, StartsPythonsTorchDistributedTwiceAtOnce) {
  const std::string python = LOCKSTEP_TORCH_PYTHON;
  if (access(python.c_str(), X_OK) != 0) GTEST_SKIP() << "no " << python << ": a libtorch without Python";
  Program first({"run", "-n", "2", "--", python, LOCKSTEP_ALL_REDUCE_PY});
  Program second({"run", "-n", "2", "--", python, LOCKSTEP_ALL_REDUCE_PY});
  for (Program* program : {&first, &second}) {
    const auto ended = program->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(lines_of(ended.out),
                UnorderedElementsAre("[0] sum [3.0, 3.0, 3.0] of 2", "[1] sum [3.0, 3.0, 3.0] of 2"));
  }
}

TEST(Run, SaysWhenItsPortIsTaken) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(socket, 1), 0);
  ASSERT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin6_port));
  const auto ended =
      run_program(run_script({"-n", "1", "--hosts", "localhost,b", "--rank-offset", "0", "--port", port}, "true"));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.err, "lockstep: run: port " + port + " is taken on this host, expected a free one (--port)\n");
  close(socket);
}

TEST(Run, PassesOnWhatIsTypedAndCtrlCOnATerminal) {
  Program program(run_script({"-n", "2"}, "[ $RANK = 0 ] && read line && echo \"heard $line\"; exec sleep 1000"),
                  {.environment = {{"TERM", "xterm"}, {"NO_COLOR", ""}}, .terminal = true});
  program.type("a line\n");
  program.wait_for_output("\033[36m[0]\033[0m heard a line");
  program.type("\x03");
  EXPECT_EQ(program.wait().exit_code, 130);
}

TEST(Run, StopsAndGoesOnWithItsRanksOnATerminal) {
  Program program(run_script({"-n", "1"}, "echo pid $$; exec sleep 1000"), {.terminal = true});
  program.wait_for_output("pid");
  const pid_t rank = pids_in(program.out(), "pid ").at(0);
  program.type("\x1a");  // Ctrl-Z
  EXPECT_TRUE(eventually([&] { return state_of(program.process()) == 'T' && state_of(rank) == 'T'; }));
  program.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return state_of(program.process()) != 'T' && state_of(rank) != 'T'; }));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGTERM);
}

}  // namespace
}  // namespace lockstep::cli
