// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/program.h"
#include "cli/run.h"
#include "cli/verify.h"
#include "launch/output.h"
#include "launch/supervisor.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

TEST(Verify, UsualPlacementsAreThoseOfAnyNumberOfReplicas) {
  EXPECT_EQ(usual_placements(8, true), "1;2;8;2x4;3+3+2");
  EXPECT_EQ(usual_placements(8, false), "1;2;8");
  for (const int64_t replicas : {2, 3, 4, 5, 7, 16})
    EXPECT_GE(parse_placements(usual_placements(replicas, true), replicas).size(), 3U) << replicas;
}

TEST(Lines, AreTheSameHoweverTheyWereCut) {
  const std::string text = "one\n\ntwo three\r\nfour\rfive\nsix";
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    Lines lines("> ");
    std::string got;
    for (size_t at = 0; at < text.size(); at += cut) got += lines.feed(std::string_view(text).substr(at, cut));
    EXPECT_EQ(got, "> one\n> \n> two three\n> five\n") << cut;
    EXPECT_EQ(lines.finish(), "> six\n") << cut;
    EXPECT_EQ(lines.finish(), "");
  }
}

TEST(Lines, ThatNeverEndAreCut) {
  Lines lines("> ");
  const auto got = lines_of(lines.feed(std::string(150'000, 'x')));
  ASSERT_EQ(got.size(), 2u);
  for (const auto& line : got) EXPECT_EQ(line, "> " + std::string(65536, 'x'));
  EXPECT_EQ(lines.finish(), "> " + std::string(150'000 - 2 * 65536, 'x') + "\n");
}

struct Wrong {
  std::vector<std::string> arguments;
  const char* message;
};

TEST(CommandLine, AnswersAMistakeWithOneLineAndExitCode2) {
  const Wrong cases[] = {
      {{"rnu"}, "lockstep: unknown command 'rnu', expected one of those in 'lockstep --help' (did you mean 'run'?)\n"},
      {{"--vresion"}, "lockstep: unknown option '--vresion' (did you mean '--version'?)\n"},
      {{"run", "-n", "2", "--timout=3"}, "lockstep: run: unknown option '--timout=3' (did you mean '--timeout'?)\n"},
      {{"run", "-n", "2", "./train"}, "lockstep: run: unexpected argument './train', expected -- before the program\n"},
      {{"run", "-n", "two", "--", "x"},
       "lockstep: run: Could not convert: --processes = two (see 'lockstep run --help')\n"},
      {{"run", "--", "x"}, "lockstep: run: --processes is required (see 'lockstep run --help')\n"},
      {{"run", "-n", "2"},
       "lockstep: run: no program, expected one after --, as in 'lockstep run -n 4 -- ./train --lr 0.1'\n"},
      {{"run", "-n", "0", "--", "x"}, "lockstep: run: -n is 0, expected 1 to 4096 processes\n"},
      {{"run", "-n", "2", "--timeout", "0", "--", "x"},
       "lockstep: run: --timeout is 0, expected seconds, more than 0\n"},
      {{"run", "-n", "2", "--world-size", "4", "--", "x"},
       "lockstep: run: --world-size is 4 with -n 2, expected --hosts too: the hosts of the run, rank 0's first\n"},
      {{"run", "-n", "2", "--hosts", "a,b", "--", "x"},
       "lockstep: run: several hosts without --rank-offset, expected the rank of this host's first process (0 on a)\n"},
      {{"run", "-n", "2", "--hosts", "a,b", "--rank-offset", "3", "--", "x"},
       "lockstep: run: --rank-offset is 3, expected 0 to 2 (4 ranks, 2 here)\n"},
      {{"run", "-n", "2", "--hosts", "a,b", "--rank-offset", "0", "--port", "0", "--", "x"},
       "lockstep: run: --port is 0, expected 1 to 65535\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const auto ended = run_program(arguments);
    EXPECT_EQ(ended.exit_code, 2) << message;
    EXPECT_EQ(ended.err, message);
    EXPECT_EQ(ended.out, "");
  }
}

// Of a launcher whose rank takes no notice of the signal, and ends well after it.
int exit_code_after_sigterm(bool ends_on_signal) {
  const test::TemporaryFolder folder;
  const std::string deaf = folder.file("deaf"), told = folder.file("told");
  RunOptions options;
  options.processes = 1;
  options.ends_on_signal = ends_on_signal;
  options.program = {"sh", "-c", "trap '' TERM; touch " + deaf + "; until [ -e " + told + " ]; do sleep 0.05; done"};
  const pid_t launcher = fork();
  if (launcher == 0) _exit(run(options));
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(deaf); }));
  kill(launcher, SIGTERM);
  std::ofstream(told).close();
  int status = 0;
  waitpid(launcher, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Launcher, TellsOfASignalThatItsRanksOverheard) {
  EXPECT_EQ(exit_code_after_sigterm(false), 0);
  EXPECT_EQ(exit_code_after_sigterm(true), 128 + SIGTERM);
}

TEST(Launcher, LeavesSignalsAsTheyWere) {
  signal(SIGCHLD, SIG_IGN);
  { const Signals signals; }
  EXPECT_EQ(signal(SIGCHLD, SIG_DFL), SIG_IGN);
  EXPECT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) EXPECT_FALSE(sigismember(&blocked, number)) << number;
}

// As verify, speedup and sweep do. A rank that the signal doesn't reach ends well; dash would take whatever it blocks.
TEST(Launcher, PassesSignalsOnInItsSecondRunToo) {
  const test::TemporaryFolder folder;
  const std::string begun = folder.file("begun");
  RunOptions first, second;
  first.processes = second.processes = 1;
  first.program = {"true"};
  second.program = {"bash", "-c", "touch " + begun + "; exec sleep 3"};
  const pid_t launcher = fork();
  if (launcher == 0) _exit(run(first) == 0 ? run(second) : 99);
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(begun); }));
  kill(launcher, SIGINT);
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

TEST(CommandLine, ListsLeaveTheModelAlone) {
  using Words = std::vector<std::string>;
  for (const Words& start : {Words{"speedup", "--batch", "32,64"}, Words{"sweep", "--lr", "0.1,0.2"},
                             Words{"train", "--schedule", "multi-step", "--milestones", "1,2"}}) {
    Words words = start;
    words.insert(words.end(), {"mlpp", "--quiet", "--data", "synthetic:1x8x8:4:100"});
    EXPECT_THAT(run_program(words).err, testing::HasSubstr("did you mean 'mlp'?")) << start[0];
  }
}

TEST(CommandLine, HelpsWhoAsks) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"}, {"run", "--help"}}) {
    const auto ended = run_program(arguments);
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_THAT(ended.out, testing::HasSubstr("Usage: lockstep"));
  }
  const auto alone = run_program({});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, testing::HasSubstr("Usage: lockstep"));
}

}  // namespace
}  // namespace lockstep::cli
