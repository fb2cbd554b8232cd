// SPDX-License-Identifier: Apache-2.0
// Event files, read back by TensorBoard.
#include "lockstep/report/tensorboard.h"
#include "lockstep/pictures/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/detail/file.h"
#include "report/command_output.h"
#include "report/tensorboard/protobuf.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::report {
namespace {

using test::error_of;
using test::TemporaryFolder;

using nlohmann::json;
using testing::HasSubstr;
using testing::SizeIs;

CommandOutput tensorboard_output(const std::filesystem::path& folder) {
  return output_of(std::string("'") + LOCKSTEP_PYTHON + "' '" + LOCKSTEP_READ_EVENTS + "' '" + folder.string() +
                   "' 2>/dev/null");
}

class TensorBoard : public testing::Test {
 protected:
  void SetUp() override {
    const CommandOutput output = tensorboard_output(folder.path());
    if (output.exit_code == 77 || output.exit_code == 127)
      GTEST_SKIP() << "no TensorBoard in " << LOCKSTEP_PYTHON
                   << " (./dev setup installs it beside torch): " << output.text;
    ASSERT_EQ(output.exit_code, 0) << output.text;
  }

  json read() const {
    const CommandOutput output = tensorboard_output(folder.path());
    EXPECT_EQ(output.exit_code, 0) << output.text;
    return json::parse(output.text, nullptr, false);
  }

  const TemporaryFolder folder;
};

run::Metrics full_line(int64_t step, data::Subset subset) {
  return {.step = step,
          .epoch = 1.,
          .subset = subset,
          .loss = 0.5,
          .accuracy = 0.25,
          .seconds = 1,
          .lr = 0.125,
          .examples_per_second = 1000.,
          .phases = run::Phases{.data = 0.5, .wait = 2}};
}

TEST_F(TensorBoard, ReadsTheFiguresOfALine) {
  EventWriter writer(folder.path());
  writer.metrics(full_line(3, data::Subset::train));
  writer.metrics({.step = 3, .subset = data::Subset::test, .loss = std::nan(""), .accuracy = 0.75});
  writer.scalar("speed", -1, 1e10);
  const json scalars = read()["scalars"];
  EXPECT_EQ(scalars["loss/train"], json::parse("[[3, 0.5]]"));
  EXPECT_EQ(scalars["accuracy/train"], json::parse("[[3, 0.25]]"));
  EXPECT_EQ(scalars["accuracy/test"], json::parse("[[3, 0.75]]"));
  EXPECT_EQ(scalars["loss/test"], json::parse(R"([[3, "nan"]])"));
  EXPECT_EQ(scalars["lr"], json::parse("[[3, 0.125]]"));
  EXPECT_EQ(scalars["seconds/wait"], json::parse("[[3, 2.0]]"));
  EXPECT_EQ(scalars["speed"], json::parse("[[-1, 1e10]]"));
  EXPECT_FALSE(scalars.contains("gradient_norm"));
}

TEST_F(TensorBoard, CallsThePaceWhatItCounts) {
  EventWriter images(folder.path()), clouds(folder.path(), std::nullopt, "voxels_per_second");
  images.metrics(full_line(3, data::Subset::train));
  EventWriter moved = std::move(clouds);
  moved.metrics(full_line(4, data::Subset::train));
  const json scalars = read()["scalars"];
  EXPECT_EQ(scalars["examples_per_second/train"], json::parse("[[3, 1000.0]]"));
  EXPECT_EQ(scalars["voxels_per_second/train"], json::parse("[[4, 1000.0]]"));
}

TEST_F(TensorBoard, ReadsALongRunWhole) {
  EventWriter writer(folder.path());
  for (int step = 0; step < 5000; ++step) writer.scalar("loss", step, step * 0.5);
  const json loss = read()["scalars"]["loss"];
  ASSERT_THAT(loss, SizeIs(5000));
  EXPECT_EQ(loss[4999], json::parse("[4999, 2499.5]"));
}

TEST_F(TensorBoard, ReadsTextPicturesAndHistograms) {
  EventWriter writer(folder.path());
  const std::string config = verbatim("model = \"lenet\"\n\nlr = 0.2\n");
  writer.text("config", 0, config);
  const pictures::Image picture{2, 1, 3, {255, 0, 0, 0, 0, 255}};
  writer.image("samples", 7, picture);
  const float values[] = {-1, 0, 0.5F, 2, std::numeric_limits<float>::quiet_NaN()};
  writer.histogram("weights", 9, values);
  const json found = read();
  EXPECT_EQ(found["texts"]["config"], json({0, config, "text"}));
  EXPECT_EQ(found["images"]["samples"], json({7, 2, 1, picture.pixels}));
  const json& histogram = found["histograms"]["weights"];
  EXPECT_EQ(json(histogram.begin(), histogram.begin() + 6), json({9, -1.0, 2.0, 4.0, 1.5, 5.25}));
  ASSERT_THAT(histogram[7], SizeIs(30));
  EXPECT_EQ(histogram[7][0], 1);
  EXPECT_EQ(histogram[7][29], 1);
  double count = 0;
  for (const double bin : histogram[7]) count += bin;
  EXPECT_EQ(count, 4);
}

TEST_F(TensorBoard, ForgetsWhatAResumedRunWritesAnew) {
  for (int round = 0; round < 3; ++round) {  // within a second: the files' order must not be the clock's
    const int first = round * 3 + 1;
    EventWriter writer(folder.path(), round == 0 ? std::nullopt : std::optional<int64_t>(first));
    for (int step = first; step <= first + 4; ++step) writer.scalar("loss", step, 100 * round + step);
  }
  std::vector<std::pair<int, double>> expected;
  for (int step = 1; step <= 11; ++step) expected.emplace_back(step, 100 * std::min(2, (step - 1) / 3) + step);
  EXPECT_EQ(read()["scalars"]["loss"], json(expected));
}

TEST_F(TensorBoard, ReadsWhatAKilledRunLeft) {
  EventWriter writer(folder.path());
  writer.scalar("loss", 1, 1);
  writer.scalar("loss", 2, 2);
  std::filesystem::resize_file(writer.file(), std::filesystem::file_size(writer.file()) - 3);
  EXPECT_EQ(read()["scalars"]["loss"], json::parse("[[1, 1.0]]"));
}

TEST(EventWriter, SaysWhereItCannotWrite) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(error_of([&] { EventWriter(folder / "file"); }),
              HasSubstr("EventWriter: \"" + (folder / "file").string()));
}

TEST(EventWriter, MakesItsFolderAndAFileATime) {
  const TemporaryFolder folder;
  const auto tb = folder / "run/tb";
  EventWriter first(tb), second(tb);
  EXPECT_LT(first.file(), second.file());
  EXPECT_THAT(first.file().filename().string(), testing::StartsWith("events.out.tfevents."));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(tb), {}), 2);
}

TEST(EventWriter, KeepsALongTextVerbatim) {
  EXPECT_EQ(verbatim("a\n\n  b"), "    a\n    \n      b\n");
  EXPECT_EQ(verbatim("a\n"), "    a\n");
  EXPECT_EQ(verbatim(""), "");
}

TEST(Crc32c, AgreesWithPublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);  // RFC 3720 and its appendix
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

}  // namespace
}  // namespace lockstep::report
