// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/table.h"
#include "lockstep/pictures/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/detail/file.h"
#include "lockstep/report/format.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::report {
namespace {

using test::error_of;
using test::TemporaryFolder;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Table speedups() {
  const auto two = [](double value) { return fixed(value, 2); };
  Table table({{"devices"}, {"batch"}, {"time", "ms", two}, {"speedup", "", two}, {"where"}});
  table.add({int64_t{1}, int64_t{8}, 100.0, 1.0, std::string("1 thread")});
  table.add({int64_t{2}, int64_t{8}, 52.5, 1.905, std::string("2 threads")});
  table.add({int64_t{16}, int64_t{12}, 9.126, std::nan(""), std::monostate{}});
  return table;
}

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  EXPECT_EQ(speedups().to_text(),
            "devices  batch  time (ms)  speedup  where\n"
            "-------  -----  ---------  -------  ---------\n"
            "      1      8     100.00     1.00  1 thread\n"
            "      2      8      52.50     1.91  2 threads\n"
            "     16     12       9.13      nan  -\n");
}

TEST(Table, CountsCharactersAndNotBytes) {
  Table table({{"größe"}, {"n"}});
  table.add({std::string("ä"), int64_t{1}});
  EXPECT_EQ(table.to_text(), "größe  n\n-----  -\nä      1\n");
}

TEST(Table, OfNoRowsIsItsHeading) {
  EXPECT_EQ(Table({{"a"}, {"b", "s"}}).to_text(), "a  b (s)\n-  -----\n");
  EXPECT_EQ(Table({{"a"}}).to_json(), "[]");
}

TEST(Table, IsAListOfObjectsInJson) {
  const std::string json = speedups().to_json();
  EXPECT_THAT(json, HasSubstr("\"time\": 52.5"));
  EXPECT_THAT(json, HasSubstr("\"devices\": 16"));
  EXPECT_THAT(json, HasSubstr("\"speedup\": null"));
  EXPECT_THAT(json, HasSubstr("\"where\": null"));
  EXPECT_THAT(json, HasSubstr("\"where\": \"1 thread\""));
}

TEST(Table, BecomesAChartWithALineForEachKind) {
  const Figure figure = speedups().to_figure({.title = "Time", .x = "devices", .y = "time", .series = "batch"});
  ASSERT_THAT(figure.series, SizeIs(2));
  EXPECT_EQ(figure.series[0].name, "batch 8");
  EXPECT_THAT(figure.series[0].x, ElementsAre(1, 2));
  EXPECT_THAT(figure.series[0].y, ElementsAre(100, 52.5));
  EXPECT_EQ(figure.series[1].name, "batch 12");
  EXPECT_EQ(figure.x.label, "devices");
  EXPECT_EQ(figure.y.label, "ms");
}

TEST(Table, LeavesOutOfAChartWhatIsNoNumber) {
  const Figure figure = speedups().to_figure({.title = "Speedup", .x = "devices", .y = "speedup", .log_x = true});
  ASSERT_THAT(figure.series, SizeIs(1));
  EXPECT_THAT(figure.series[0].x, ElementsAre(1, 2));
  EXPECT_TRUE(figure.x.log);
}

TEST(Table, SaysWhichRowOrColumnIsWrong) {
  Table table({{"a"}, {"b"}});
  EXPECT_EQ(error_of([&] { table.add({int64_t{1}}); }), "Table: row 0 has 1 cells, expected 2, one a column");
  EXPECT_THAT(error_of([&] { table.to_figure({.title = "T", .x = "a", .y = "c"}); }), HasSubstr("no column 'c'"));
}

TEST(Table, IsWrittenAsSvgAndPng) {
  const TemporaryFolder folder;
  const Figure figure = speedups().to_figure({.title = "Time", .x = "devices", .y = "time"});
  write_figures(folder / "speedup", {&figure, 1});
  EXPECT_THAT(read_file(folder / "speedup.svg"), HasSubstr("data-series=\"time\""));
  EXPECT_EQ(pictures::decode_png(read_file(folder / "speedup.png"), "speedup.png").width, 960);
}

}  // namespace
}  // namespace lockstep::report
