// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/program.h"

namespace lockstep::cli {
namespace {

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

TEST(CommandLine, ListsLeaveTheModelAlone) {
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
