// SPDX-License-Identifier: Apache-2.0
// The commands that compare trainings: `lockstep verify`, `speedup`, `compare` and `sweep`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "lockstep/comm/connect.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Verify, PlacementsThatKeepTheOrderAreIdentical) {
  const Words words{"verify",       "lenet",
                    "--data",       "synthetic:1x28x28:10:512",
                    "--batch",      "64",
                    "--steps",      "5",
                    "--placements", comm::backends().empty() ? "1;2;8" : "1;2;2x4;3+3+2"};
  const Ended ended = run_program(words);
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(lines_of(ended.out).back(), "identical");
}

TEST(Verify, DivisionsOfTheNetworkOverThreadsAndProcessesAreIdentical) {
  const Ended ended =
      run_program({"verify", "lenet", "--data", "synthetic:1x28x28:10:512", "--batch", "64", "--steps", "4",
                   "--replicas", "8", "--slices", "4", "--placements",
                   comm::backends().empty() ? "1;2;2:p2;4:p2;4:t4;4:p2t2" : "1;2;2x4;2:p2;4:p2;2x1:p2;2x2:p2t2;4:t4"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(lines_of(ended.out).back(), "identical");
}

// The ring adds up in an order that follows the processes: the fault that verify is there to find.
TEST(Verify, AnOrderThatFollowsThePlacementIsFoundWithStepAndTensor) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const Ended ended = run_program({"verify", "lenet", "--data", "synthetic:1x28x28:10:512", "--batch", "64", "--steps",
                                   "5", "--placements", "1;3+3+2", "--reduce", "ring"});
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, MatchesRegex("(.|\n)*differs from 1: first in [a-z0-9._]+, after step 1 (.|\n)*"));
  EXPECT_EQ(lines_of(ended.out).back(), "not identical");
}

TEST(Verify, PlacementsThatMakeNoSenseAreNamed) {
  for (const auto& [placements, message] : {std::pair("1;3+3", "'3+3' has 6 replicas, expected 8"),
                                            {"1;x2", "placement 'x2' has ''"},
                                            {"1", "expected two or more"},
                                            {"1;9x1", "9 processes for 8 replicas"}}) {
    const Ended ended = run_program({"verify", "mlp", "--placements", placements});
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, HasSubstr(message));
  }
}

TEST(Speedup, PrintsATableAndWritesJsonAndAChart) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  const Ended ended = run_program({"speedup", "mlp", "--data", "synthetic:1x8x8:4:512", "--batch", "16,32", "--devices",
                                   "1,2", "--rounds", "1", "--steps", "5", "--apart", "--json",
                                   folder.file("table.json"), "--chart", folder.file("chart")});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("batch per device"), HasSubstr("speedup"), HasSubstr("ideal")));
  EXPECT_THAT(ended.out, ContainsRegex("over all batch sizes\n\ndevices  mean speedup  ideal  cores\n"
                                       "-------  ------------  -----  ------?\n"
                                       "      1          1.00   1.00  own\n"
                                       "      2   +[0-9.]+   2.00  (own|shared)\n"));
  std::ifstream file(folder.file("table.json"));
  const auto rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1]["devices"], 2);
  EXPECT_EQ(rows[1]["batch"], 16);
  EXPECT_EQ(rows[1]["ideal"], 2);
  EXPECT_EQ(rows[0]["cores"], "own");
  EXPECT_EQ(rows[0]["speedup"], 1);
  EXPECT_EQ(rows[0]["apart"], 1);
  EXPECT_GT(rows[3]["apart"].get<double>(), 0);
  EXPECT_GT(rows[3]["time per iteration"].get<double>(), 0);
  EXPECT_TRUE(std::filesystem::exists(folder.file("chart.svg")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("chart.png")));
}

TEST(Speedup, FindsPlacesThatCannotBeWrittenBeforeItMeasures) {
  for (const char* option : {"--json", "--chart"})
    for (const char* command : {"speedup", "compare", "sweep"}) {
      const Ended ended = run_program({command, "mlp", "--data", "synthetic:1x8x8:4:512", option, "/no/such/place"});
      EXPECT_EQ(ended.exit_code, 2);
      EXPECT_THAT(ended.err, HasSubstr("No such file or directory"));
      EXPECT_THAT(ended.out + ended.err, Not(HasSubstr(" a step")));
    }
}

TEST(Compare, HasARowForEachSplitWithTheSameHash) {
  const TemporaryFolder folder;
  const Ended ended = run_program({"compare",   "mlp",
                                   "--data",    "synthetic:1x8x8:4:512",
                                   "--batch",   "64",
                                   "--devices", "2",
                                   "--slices",  "2",
                                   "--splits",  "data;p2;t2;auto",
                                   "--rounds",  "1",
                                   "--steps",   "6",
                                   "--json",    folder.file("table.json"),
                                   "--chart",   folder.file("chart")});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(lines_of(ended.out).back(), "identical");
  std::ifstream file(folder.file("table.json"));
  const auto rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& [row, split] : {std::pair(0, "data"), {1, "p2"}, {2, "t2"}, {3, "auto"}}) {
    EXPECT_EQ(rows[row]["split"], split);
    EXPECT_EQ(rows[row]["hash"], rows[0]["hash"]) << split;
  }
  EXPECT_THAT(ended.out, ContainsRegex("split auto: (data|p2|t2) is chosen: [0-9.]+ ms a step, "));
  EXPECT_EQ(rows[0]["hash"].get<std::string>().size(), 64u);
  EXPECT_THAT(ended.out, HasSubstr(rows[0]["hash"].get<std::string>().substr(0, 16)));
  for (const auto& row : rows) {
    EXPECT_EQ(row["bytes_sent"], 0);  // threads of one process
    EXPECT_GT(row["peak_mib"].get<double>(), 10);
    for (const char* share : {"bubble", "waiting", "communication"}) {
      EXPECT_GE(row[share].get<double>(), 0) << share;
      EXPECT_LT(row[share].get<double>(), 1) << share;
    }
  }
  std::ifstream chart(folder.file("chart.svg"));
  const std::string svg{std::istreambuf_iterator<char>(chart), {}};
  EXPECT_THAT(svg, AllOf(HasSubstr("one device"), HasSubstr("p2, device 1, part 1")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("chart.png")));
}

TEST(Compare, MeasuresProcessesOverANetworkOfARate) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  const Ended ended = run_program({"compare",  "mlp",
                                   "--set",    "hidden=1024,64",
                                   "--data",   "synthetic:1x8x8:4:512",
                                   "--batch",  "16",
                                   "--splits", "data;p2;auto",
                                   "--rate",   "10mbit",
                                   "--rounds", "1",
                                   "--steps",  "5",
                                   "--json",   folder.file("table.json"),
                                   "--chart",  folder.file("chart")});
  if (ended.exit_code == 77) GTEST_SKIP() << ended.err;
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("2 processes, a host each"));
  EXPECT_EQ(lines_of(ended.out).back(), "identical");
  std::ifstream file(folder.file("table.json"));
  const auto rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) EXPECT_EQ(row["hash"], rows[0]["hash"]);
  for (const auto& row : rows) EXPECT_EQ(row["rate"], "10mbit");
  EXPECT_THAT(ended.out, HasSubstr("split auto: p2 is chosen"));
  EXPECT_THAT(ended.out, ContainsRegex("split auto: processes send each other ([4-9]|1[0-2]) Mbit/s"));
  // The gradients of 130 thousand weights cross in one, what a layer gives for 16 examples in the other.
  EXPECT_GT(rows[0]["bytes_sent"], 2 * rows[1]["bytes_sent"].get<int64_t>());
  EXPECT_GT(rows[1]["bytes_sent"], 0);
  std::ifstream chart(folder.file("chart.svg"));
  const std::string svg{std::istreambuf_iterator<char>(chart), {}};
  EXPECT_THAT(svg, AllOf(HasSubstr("p2 at 10mbit, process 0"), HasSubstr("p2 at 10mbit, process 1")));
}

TEST(Sweep, ComparesRatesOnNumbersOfDevices) {
  const TemporaryFolder folder;
  const Ended ended =
      run_program({"sweep", "mlp", "--data", "synthetic:1x8x8:4:512", "--batch", "16", "--lr", "0.01,0.1", "--devices",
                   "1,2", "--epochs", "1", "--json", folder.file("table.json"), "--chart", folder.file("chart")});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::ifstream file(folder.file("table.json"));
  const auto rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["batch"], 32);
  EXPECT_EQ(rows[3]["lr"], 0.1);
  EXPECT_TRUE(std::filesystem::exists(folder.file("chart.svg")));
}

}  // namespace
}  // namespace lockstep::cli
