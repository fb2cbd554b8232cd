// SPDX-License-Identifier: Apache-2.0
// `lockstep forecast`, and what `train` and `speedup` say of it.
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
using ::testing::Not;

Words mlp() {
  return {"mlp", "--data", "synthetic:1x8x8:4:512", "--batch", "64", "--replicas", "8"};
}

nlohmann::json read(const std::string& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

/// A training whose run is in `run` has said how its steps compare, and its report says it, too.
void expect_verdict(const Ended& trained, const TemporaryFolder& folder) {
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, ContainsRegex("a step: forecast [0-9.]+ ms \\[[0-9.]+, [0-9.]+\\], was [0-9.]+, [+-]"));
  EXPECT_THAT(read(folder.file("run/summary.json"))["forecast"].get<std::string>(), HasSubstr("was"));
  ASSERT_EQ(run_program({"report", folder.file("run"), "-o", folder.file("report.html")}).exit_code, 0);
  std::ifstream page(folder.file("report.html"));
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(page), {}), HasSubstr("A step: forecast"));
}

TEST(Forecast, PrintsATableAndWritesJsonAChartAndAProfile) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  const Words measured = Words{"forecast"} + mlp() +
                         Words{"--devices",
                               "1,2,8,1024",
                               "--hosts",
                               "1024x1",
                               "--link",
                               "25gbit:5us",
                               "--scale-batch",
                               "--rounds",
                               "1",
                               "--profile-steps",
                               "8",
                               "--save",
                               folder.file("profile.json"),
                               "--json",
                               folder.file("rows.json"),
                               "--chart",
                               folder.file("chart")};
  const Ended ended = run_program(measured);
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("mlp on synthetic:1x8x8:4:512"), HasSubstr("device hours"),
                               HasSubstr("pays from"), HasSubstr("other processors, and GPUs, have other times")));
  const auto rows = read(folder.file("rows.json"));
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    EXPECT_LT(row["low_ms"].get<double>(), row["forecast_ms"].get<double>());
    EXPECT_GT(row["high_ms"].get<double>(), row["forecast_ms"].get<double>());
    EXPECT_TRUE(row["measured_ms"].is_null());
    EXPECT_EQ(row["ideal"], row["devices"]);
    EXPECT_EQ(row["split"], "data");
  }
  EXPECT_EQ(rows[3]["batch"], 64 * 1024);
  EXPECT_GT(rows[3]["bytes_sent"].get<int64_t>(), 0);
  EXPECT_TRUE(std::filesystem::exists(folder.file("chart.svg")));

  // The same numbers from the same profile, whenever it is asked.
  const Words again = Words{"forecast"} + mlp() +
                      Words{"--devices",
                            "1,2,8,1024",
                            "--hosts",
                            "1024x1",
                            "--link",
                            "25gbit:5us",
                            "--scale-batch",
                            "--profile",
                            folder.file("profile.json"),
                            "--json",
                            folder.file("again.json")};
  ASSERT_EQ(run_program(again).exit_code, 0);
  EXPECT_EQ(read(folder.file("again.json")), rows);
}

TEST(Forecast, IsCheckedByRunningIt) {
  const TemporaryFolder folder;
  const Ended ended =
      run_program(Words{"forecast"} + mlp() +
                  Words{"--devices", "1", "--hosts", "1x2", "--splits", "data;auto", "--rounds", "1", "--profile-steps",
                        "8", "--check", "--save", folder.file("profile.json"), "--json", folder.file("rows.json")});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, ContainsRegex("1 device \\(1\\), data: forecast [0-9.]+ ms \\[[0-9.]+, [0-9.]+\\], was"));
  EXPECT_THAT(ended.out, HasSubstr("backward"));
  const auto rows = read(folder.file("rows.json"));
  EXPECT_GT(rows[0]["measured_ms"].get<double>(), 0);
  // The automatic choice is that placement, too, which is run once.
  EXPECT_THAT(ended.out, HasSubstr("1 device (1), auto: data: forecast"));
  EXPECT_EQ(rows[1]["measured_ms"], rows[0]["measured_ms"]);
  EXPECT_EQ(ended.err.find("check 1 of 1: 1:"), ended.err.rfind("check 1 of 1: 1:")) << ended.err;

  const Ended trained = run_program(
      Words{"train"} + mlp() +
      Words{"--devices", "1", "--epochs", "2", "--out", folder.file("run"), "--forecast", folder.file("profile.json")});
  expect_verdict(trained, folder);
}

TEST(Forecast, NamesWhatMakesNoSense) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  for (const auto& [words, message] :
       {std::pair(Words{"--devices", "0"}, "--devices has 0"),
        {Words{"--link", "25"}, "--link is '25', expected measure, or a rate and a latency"},
        {Words{"--hosts", "2"}, "--hosts is '2', expected hosts and the devices of each, as 8x128"},
        {Words{"--devices", "3", "--hosts", "2x2"}, "expected a number that fills its hosts evenly"},
        {Words{"--splits", "q2"}, "got 'q2'"},
        {Words{"--profile", "/no/such/file"}, "/no/such/file"},
        {Words{"--profile", "a", "--save", "b"}, "--profile reads what --save writes"},
        {Words{"--profile-steps", "3"}, "--profile-steps is 3"},
        {Words{"--json", "/no/such/place"}, "No such file or directory"}}) {
    const Ended ended = run_program(Words{"forecast"} + mlp() + words);
    EXPECT_EQ(ended.exit_code, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(message));
  }
}

TEST(Train, ForecastsItselfByWhatIsRemembered) {
  const TemporaryFolder folder;
  const ProgramOptions own{.environment = {{"XDG_CACHE_HOME", folder.file("cache")}}};
  const Words quick{"--devices", "1", "--hosts", "1x2", "--rounds", "1", "--profile-steps", "8"};
  const Ended ended = run_program(Words{"forecast"} + mlp() + quick, own);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto train = [&](const std::string& name, const Words& recipe) {
    return run_program(Words{"train"} + recipe + Words{"--devices", "1", "--no-curves", "--out", folder.file(name)},
                       own);
  };
  const Ended trained = train("run", mlp() + Words{"--epochs", "2", "--seed", "3", "--lr", "0.1"});
  expect_verdict(trained, folder);

  const Ended other =
      train("other", {"mlp", "--data", "synthetic:1x8x8:4:512", "--batch", "32", "--replicas", "8", "--epochs", "1"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, Not(HasSubstr("forecast")));

  for (const auto& entry : std::filesystem::directory_iterator(folder.file("cache/lockstep/profiles")))
    std::ofstream(entry.path()) << "{";
  const Ended broken = train("broken", mlp() + Words{"--epochs", "2"});
  EXPECT_EQ(broken.exit_code, 0);
  EXPECT_THAT(broken.out + broken.err, Not(HasSubstr("forecast")));
}

TEST(Train, MeasuresAForecastThatIsAskedFor) {
  const TemporaryFolder folder;
  const ProgramOptions own{.environment = {{"XDG_CACHE_HOME", folder.file("cache")}}};
  const auto train = [&](const std::string& name, const Words& more) {
    return run_program(
        Words{"train"} + mlp() + Words{"--devices", "1", "--epochs", "2", "--out", folder.file(name)} + more, own);
  };
  const Ended first = train("first", {"--forecast"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("it is measured first"), HasSubstr("round 3 of 3")));
  EXPECT_THAT(first.out, HasSubstr("a step: forecast"));
  const Ended second = train("second", {"--forecast"});
  EXPECT_THAT(second.err, Not(HasSubstr("measured")));
  EXPECT_THAT(second.out, HasSubstr("a step: forecast"));
  const Ended audited = train("audited", {"--audit", "5", "--forecast"});
  EXPECT_EQ(audited.exit_code, 2);
  EXPECT_THAT(audited.err, HasSubstr("--forecast knows nothing of --audit"));
}

TEST(Train, OfSeveralProcessesMeasuresNothing) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  const ProgramOptions own{.environment = {{"XDG_CACHE_HOME", folder.file("cache")}}};
  const auto train = [&](const std::string& name, const Words& more) {
    return run_program(Words{"run", "-n", "2", "--", built("bin/lockstep"), "train"} + mlp() +
                           Words{"--devices", "1", "--epochs", "2", "--out", folder.file(name)} + more,
                       own);
  };
  const Ended refused = train("refused", {"--forecast"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("lockstep forecast mlp --hosts 2x1 --devices 2 --replicas 8"));
  const Ended measured = run_program(
      Words{"forecast"} + mlp() + Words{"--devices", "2", "--hosts", "2x1", "--rounds", "1", "--profile-steps", "8"},
      own);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  for (const Words& asked : {Words{}, Words{"--forecast"}}) {
    const Ended trained = train(asked.empty() ? "alone" : "asked", asked);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(trained.out, HasSubstr("a step: forecast"));
  }
}

TEST(Speedup, HasTheForecastBesideWhatWasMeasured) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  const Ended ended =
      run_program(Words{"speedup"} + mlp() +
                  Words{"--devices", "1,2", "--rounds", "1", "--steps", "8", "--json", folder.file("table.json")});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const auto& row : read(folder.file("table.json"))) {
    if (row["cores"] == "shared") continue;  // more devices than cores were not forecast
    EXPECT_GT(row["forecast"].get<double>(), 0);
  }
}

}  // namespace
}  // namespace lockstep::cli
