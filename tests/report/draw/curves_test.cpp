// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/curves.h"
#include "lockstep/pictures/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/detail/file.h"
#include "support/temporary_folder.h"

namespace lockstep::report {
namespace {

using test::TemporaryFolder;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

run::RunData run_of(const std::string& name, int epochs) {
  run::RunData run{.name = name};
  for (int epoch = 1; epoch <= epochs; ++epoch)
    for (const data::Subset subset : {data::Subset::train, data::Subset::test})
      run.metrics.push_back({.step = epoch * 10,
                             .epoch = epoch,
                             .subset = subset,
                             .loss = (subset == data::Subset::train ? 1. : 2.) / epoch,
                             .accuracy = 1 - 1. / epoch,
                             .seconds = epoch * 1.});
  return run;
}

std::vector<std::string> names_of(const Figure& figure) {
  std::vector<std::string> names;
  for (const auto& series : figure.series) names.push_back(series.name);
  return names;
}

TEST(Curves, OfOneRunAreTrainAndTest) {
  const run::RunData run = run_of("a", 3);
  const Figure loss = loss_figure({&run, 1});
  EXPECT_THAT(names_of(loss), ElementsAre("train", "test"));
  EXPECT_THAT(loss.series[0].y, ElementsAre(1, 0.5, 1 / 3.));
  EXPECT_THAT(loss.series[1].y, ElementsAre(2, 1, 2 / 3.));
  EXPECT_THAT(loss.series[1].x, ElementsAre(1, 2, 3));
  EXPECT_EQ(loss.x.label, "epoch");
  EXPECT_NE(loss.series[0].color, loss.series[1].color);
}

TEST(Curves, OfSeveralRunsHaveAColourARun) {
  const run::RunData runs[] = {run_of("a", 2), run_of("b", 2)};
  const Figure accuracy = accuracy_figure(runs);
  EXPECT_THAT(names_of(accuracy), ElementsAre("a, train", "a, test", "b, train", "b, test"));
  EXPECT_EQ(accuracy.series[0].color, accuracy.series[1].color);
  EXPECT_NE(accuracy.series[1].color, accuracy.series[2].color);
  EXPECT_TRUE(accuracy.series[0].dashed);
  EXPECT_FALSE(accuracy.series[1].dashed);
}

TEST(Curves, CountStepsWhereALineDoesNotKnowItsEpoch) {
  run::RunData run = run_of("a", 2);
  run.metrics[0].epoch.reset();
  const Figure loss = loss_figure({&run, 1});
  EXPECT_EQ(loss.x.label, "step");
  EXPECT_THAT(loss.series[0].x, ElementsAre(10, 20));
}

TEST(Curves, HaveNoSeriesForWhatWasNotMeasured) {
  const run::RunData run = run_of("a", 2);
  EXPECT_THAT(learning_rate_figure({&run, 1}).series, IsEmpty());
  EXPECT_THAT(throughput_figure({&run, 1}).series, IsEmpty());
  EXPECT_THAT(gradient_norm_figure({&run, 1}).series, IsEmpty());
  EXPECT_THAT(phases_figure(run).series, IsEmpty());
  EXPECT_THAT(speedup_figure({}).series, IsEmpty());
  EXPECT_THAT(loss_figure({}).series, IsEmpty());
}

TEST(Curves, AddUpToTheTimeOfAStep) {
  run::RunData run{.name = "a"};
  for (int step = 1; step <= 120; ++step)
    run.metrics.push_back({.step = step, .phases = run::Phases{.data = 0.001, .forward = 0.004, .wait = step * 1e-4}});
  const Figure figure = phases_figure(run);
  ASSERT_THAT(figure.series, SizeIs(6));
  EXPECT_TRUE(figure.stacked);
  EXPECT_THAT(figure.series[0].x, SizeIs(60));  // two lines a column
  EXPECT_EQ(figure.series[0].x[0], 2);
  double total = 0;
  for (const auto& series : figure.series) total += series.y[0];
  EXPECT_NEAR(total, 1 + 4 + 0.15, 1e-9);  // milliseconds
}

TEST(Curves, OfSpeedupHaveALineABatchSizeAndTheIdeal) {
  const run::SpeedupRow rows[] = {
      {4, 8, 0.3, 2.5}, {1, 8, 0.9, 1}, {2, 8, 0.5, 1.8}, {1, 16, 1.5, 1}, {4, 16, 0.4, 3.6}};
  const Figure figure = speedup_figure(rows);
  EXPECT_THAT(names_of(figure), ElementsAre("batch 8", "batch 16", "ideal"));
  EXPECT_THAT(figure.series[0].x, ElementsAre(1, 2, 4));
  EXPECT_THAT(figure.series[0].y, ElementsAre(1, 1.8, 2.5));
  EXPECT_THAT(figure.series[2].y, ElementsAre(1, 4));
  EXPECT_TRUE(figure.series[2].reference);
  EXPECT_EQ(figure.y.high, 4);
}

TEST(CurvesFiles, AreReplacedAsTheRunGoesOn) {
  const TemporaryFolder folder;
  const run::Folder files{folder.path()};
  std::string before;
  for (const int epochs : {0, 1, 2, 10}) {
    write_curves(files, run_of("a", epochs).metrics);
    const pictures::Image image = pictures::decode_png(read_file(files.curves_png()), "curves.png");
    EXPECT_EQ(image.width, 2 * 480 * 2);
    const std::string svg = read_file(files.curves_svg());
    EXPECT_THAT(svg, HasSubstr(epochs == 0 ? "nothing measured yet" : "data-series=\"test\""));
    EXPECT_NE(svg, before);
    before = svg;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);  // nothing else is left
}

}  // namespace
}  // namespace lockstep::report
