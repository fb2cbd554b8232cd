// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "lockstep/base/allocator.h"
#include "lockstep/numerics/device.h"
#include "lockstep/numerics/fingerprint.h"

namespace lockstep::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(Selftest, PassesAlone) {
  const auto ended = run_program({"selftest", "--threads", "3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out, ContainsRegex("local +3 +[0-9]+  ok\n"));
  EXPECT_THAT(ended.out, ContainsRegex("hierarchical +1 x 3 +[0-9]+  ok\n"));
  EXPECT_THAT(ended.out, Not(HasSubstr("failed")));
  EXPECT_THAT(ended.out, ContainsRegex("gloo +- +-  left out: selftest: gloo joins processes, and this is one"));
}

TEST(Selftest, PassesInTwoProcessesOnEveryBackendThatIsBuiltIn) {
  const auto ended = run_program({"run", "-n", "2", "--", built("bin/lockstep"), "selftest", "--bandwidth"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out, ContainsRegex("\\[0\\] local +[0-9]+ +[0-9]+  ok\n"));
  EXPECT_THAT(ended.out,
              ContainsRegex("\\[0\\] gloo +(2 +[0-9]+  ok|- +-  left out: connect: backend is 'gloo', expected .+)\n"));
  EXPECT_THAT(ended.out, ContainsRegex("\\[0\\] local +[0-9]+.* GB/s\n"));
  EXPECT_THAT(ended.out, Not(HasSubstr("[1]")));  // rank 0 alone prints the table
}

TEST(Selftest, BurnsTheCoresOfAllProcesses) {
  const auto ended = run_program({"selftest", "--burn", "0.3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, ContainsRegex("^burn: [0-9]+ cores, [0-9]+ rounds each: all the same bits\n$"));
  EXPECT_EQ(run_program({"selftest", "--burn", "-1"}).exit_code, 2);
}

TEST(Selftest, RejectsABackendThatIsNoneOrCannotBeUsedHere) {
  const auto unknown = run_program({"selftest", "--backend", "glo"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(
      unknown.err,
      "lockstep: selftest: --backend is 'glo', expected all, local, gloo, mpi, nccl or hierarchical (did you mean "
      "'gloo'?)\n");
  const auto alone = run_program({"selftest", "--backend", "mpi"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err,
              testing::StartsWith("lockstep: selftest: mpi joins processes, and this is one, expected several"));
}

TEST(Info, ShowsDevicesBackendsAndFingerprint) {
  const auto ended = run_program({"info"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr(describe(all_devices()[0])));
  for (const char* name : {"local", "gloo", "mpi", "nccl", "hierarchical"}) EXPECT_THAT(ended.out, HasSubstr(name));
  const auto fingerprint = Fingerprint::of(all_devices()[0]);
  for (const auto& [name, value] : fingerprint.items())
    EXPECT_THAT(ended.out, ContainsRegex("  " + name + " +")) << value;
}

TEST(Info, GivesTheSameAsJson) {
  const auto ended = run_program({"info", "--json"});
  EXPECT_EQ(ended.exit_code, 0);
  const auto facts = nlohmann::json::parse(ended.out);
  EXPECT_EQ(facts["version"], version());
  EXPECT_EQ(facts["devices"].size(), all_devices().size());
  EXPECT_EQ(facts["backends"]["local"], true);
  const auto fingerprint = Fingerprint::of(all_devices()[0]);
  for (const auto& [name, value] : fingerprint.items()) EXPECT_EQ(facts["fingerprints"][0][name], value);
  EXPECT_EQ(facts["process"]["size"], 1);
  EXPECT_EQ(facts["process"]["allocator"], describe(tune_allocator()));
}

TEST(Info, ShowsTheProcessItsPlaceInTheRun) {
  const auto ended = run_program({"run", "-n", "2", "--", built("bin/lockstep"), "info"});
  EXPECT_THAT(ended.out, HasSubstr("[1] this process: rank 1 of 2, 1 of 2 on this host; launcher: lockstep run"));
}

}  // namespace
}  // namespace lockstep::cli
