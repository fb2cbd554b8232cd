// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/detail/file.h"
#include "support/error_of.h"
#include "support/full_disk.h"
#include "support/temporary_folder.h"

namespace lockstep::run {
namespace {

using test::error_of;
using test::FullDisk;
using test::TemporaryFolder;

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::SizeIs;

Metrics line_of(int64_t step, data::Subset subset = data::Subset::train) {
  return {
      .step = step, .epoch = step / 10., .subset = subset, .loss = 1. / step, .accuracy = 0.5, .seconds = 2. * step};
}

Metrics full_line() {
  Metrics line = line_of(3);
  line.lr = 0.2;
  line.examples_per_second = 21400.25;
  line.phases = Phases{0.001, 0.002, 0.003, 0.004, 0.005, 0.006};
  line.gradient_norm = 1e-30;
  line.replicas = 8;
  line.devices = 2;
  return line;
}

TEST(MeanPace, WeighsEachLineByItsTimeAndLeavesTestsOut) {
  std::vector<Metrics> lines{line_of(10), line_of(10, data::Subset::test), line_of(40), line_of(50)};
  EXPECT_EQ(mean_pace(lines), std::nullopt);
  lines[0].examples_per_second = 100;  // 10 steps
  lines[1].examples_per_second = 1;
  lines[2].examples_per_second = 600;  // 30 steps
  EXPECT_NEAR(mean_pace(lines).value(), 40 / (10. / 100 + 30. / 600), 1e-9);
}

TEST(Metrics, ComeBackAsTheyWereWritten) {
  for (const Metrics& line : {full_line(), line_of(7, data::Subset::test), Metrics{.epoch = 1., .seconds = 0.1}})
    EXPECT_EQ(parse_metrics(to_json(line), "here"), line) << to_json(line);
}

TEST(Metrics, AreAnObjectThatAPersonCanRead) {
  EXPECT_EQ(
      to_json({.step = 3, .epoch = 0.5, .subset = data::Subset::test, .loss = 0.25, .accuracy = 0.75, .seconds = 1.5}),
      R"({"step":3,"epoch":0.5,"split":"test","loss":0.25,"accuracy":0.75,"seconds":1.5})");
}

TEST(Metrics, OfALossThatIsNoNumberAreNull) {
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const std::string json = to_json({.step = 1, .loss = loss});
    EXPECT_THAT(json, HasSubstr(R"("loss":null)"));
    EXPECT_TRUE(std::isnan(parse_metrics(json, "here").loss.value()));
  }
}

TEST(Metrics, PassOverKeysTheyDoNotKnow) {
  EXPECT_EQ(parse_metrics(R"({"step": 4, "split": "train", "seconds": 1, "colour": "blue"})", "here").step, 4);
}

TEST(Metrics, SayWhatIsWrongWithALine) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1]", "read_metrics: here: got [1], expected an object {...}"},
      {"{\"step\":1", "read_metrics: here: parse error at line 1, column 10"},
      {R"({"split":"train","seconds":1})", "read_metrics: here: has neither 'step' nor 'epoch', expected at least one"},
      {R"({"step":1,"seconds":1})", "read_metrics: here: 'split' is missing, expected 'train' or 'test'"},
      {R"({"step":1,"split":"valid","seconds":1})",
       "read_metrics: here: 'split' is 'valid', expected 'train' or 'test'"},
      {R"({"step":1,"split":"test"})", "read_metrics: here: 'seconds' is missing"},
      {R"({"step":"x","split":"test","seconds":1})", "read_metrics: here: 'step' is \"x\", expected a whole number"},
      {R"({"step":18446744073709551615,"split":"test","seconds":1})", "expected a whole number below 2^63"},
      {R"({"step":1,"split":"test","seconds":1,"replicas":4294967296})", "expected a number below 2^31"},
      {R"({"step":1,"split":"test","seconds":1,"phases":{"data":"x"}})",
       "read_metrics: here: phases: 'data' is \"x\", expected a number"},
  };
  for (const auto& [line, message] : cases)
    EXPECT_THAT(error_of([&line = line] { parse_metrics(line, "here"); }), HasSubstr(message)) << line;
}

TEST(MetricsFile, IsReadWhileItGrows) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  auto writer = MetricsWriter::create(file);
  EXPECT_THAT(read_metrics(file), SizeIs(0));
  writer.append(line_of(1));
  EXPECT_THAT(read_metrics(file), ElementsAre(line_of(1)));
  writer.append(full_line());
  EXPECT_THAT(read_metrics(file), ElementsAre(line_of(1), full_line()));
}

TEST(MetricsFile, LosesOnlyTheLineThatAKillCutInHalf) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  const std::string whole = to_json(line_of(1)) + "\n" + to_json(line_of(2)) + "\n";
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    write_file(file, whole.substr(0, cut));
    const size_t lines = std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    EXPECT_THAT(read_metrics(file), SizeIs(lines)) << cut;
  }
}

TEST(MetricsFile, NamesTheLineThatIsBad) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  write_file(file, to_json(line_of(1)) + "\n\nnonsense\n");
  EXPECT_THAT(error_of([&] { read_metrics(file); }), HasSubstr(file.string() + ":3: parse error"));
  EXPECT_THAT(error_of([&] { read_metrics(folder / "none"); }), HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of([&] { read_metrics(folder.path()); }), HasSubstr("is a folder, expected a file"));
}

TEST(MetricsFile, OfAResumedRunHasEveryStepOnce) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  {
    auto writer = MetricsWriter::create(file);
    for (int step = 1; step <= 6; ++step) writer.append(line_of(step));
  }
  write_file(folder / "half", read_file(file) + R"({"step": 7, "spl)");
  std::filesystem::rename(folder / "half", file);
  auto writer = MetricsWriter::resume(file, 4);
  for (int step = 5; step <= 8; ++step) writer.append(line_of(step));
  std::vector<Metrics> expected;
  for (int step = 1; step <= 8; ++step) expected.push_back(line_of(step));
  EXPECT_EQ(read_metrics(file), expected);
}

TEST(MetricsFile, KeepsTheTestLineOfTheCheckpointsStep) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  {
    auto writer = MetricsWriter::create(file);
    for (int step : {1, 2}) {
      writer.append(line_of(step));
      writer.append(line_of(step, data::Subset::test));
    }
  }
  MetricsWriter::resume(file, 1).append(line_of(2));
  EXPECT_THAT(read_metrics(file), ElementsAre(line_of(1), line_of(1, data::Subset::test), line_of(2)));
}

TEST(MetricsFile, IsMadeWhereAResumedRunFindsNone) {
  const TemporaryFolder folder;
  MetricsWriter::resume(folder / "metrics.jsonl", 10).append(line_of(11));
  EXPECT_THAT(read_metrics(folder / "metrics.jsonl"), ElementsAre(line_of(11)));
}

TEST(MetricsFile, IsNotChangedByAResumeThatFindsItDamaged) {
  const TemporaryFolder folder;
  write_file(folder / "metrics.jsonl", "nonsense\n");
  EXPECT_THAT(error_of([&] { MetricsWriter::resume(folder / "metrics.jsonl", 1); }), HasSubstr("metrics.jsonl:1: "));
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "nonsense\n");
}

TEST(MetricsFile, HasNoHalfLineAfterADiskWasFull) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  auto writer = MetricsWriter::create(file);
  writer.append(line_of(1));
  const std::string before = read_file(file);
  {
    const FullDisk disk(before.size() + 10);
    EXPECT_THAT(error_of([&] { writer.append(line_of(2)); }), EndsWith("metrics.jsonl\": File too large"));
  }
  EXPECT_EQ(read_file(file), before);
  writer.append(line_of(2));
  EXPECT_THAT(read_metrics(file), ElementsAre(line_of(1), line_of(2)));
}

}  // namespace
}  // namespace lockstep::run
