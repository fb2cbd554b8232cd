// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/example_runs.h"
#include "report/occurrences.h"
#include "support/error_of.h"

namespace lockstep::report {
namespace {

using test::error_of;

using testing::HasSubstr;
using testing::Not;

std::string page_of(const run::RunData& run) {
  return report_page({&run, 1});
}

TEST(ReportPage, OfOneRunShowsAllThatItHolds) {
  const std::string page = page_of(example_run("lenet-d2l"));
  for (const char* part :
       {"<title>lenet-d2l - Lockstep</title>", "finished</span>", "<b>0.8475</b><span>test accuracy", ">Curves<",
        "<h3>Loss", "<h3>Accuracy", "<h3>Learning rate", "<h3>Throughput", "<h3>Gradient norm", "<h3>Time per step",
        ">Confusion<", "<b>shirt</b> taken for <b>t-shirt</b>", "data:image/png;base64,iVBOR", ">Samples<",
        "warmup = 1", ">avx512<"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, HasSubstr(std::string(64, 'a')));
  EXPECT_EQ(page, page_of(example_run("lenet-d2l")));
}

TEST(ReportPage, ShowsScenesAsPicturesWithALegend) {
  const run::RunData run = example_cloud_run("minkunet14a");
  const std::string page = page_of(run);
  // 900 voxels of the floor, of which the class of 30 is unknown, one above it, 180 of a box, of which half are found.
  for (const char* part : {">Scenes<", "data-name=\"Scene 7\"", "91.4 % of the voxels right", "&lt;b&gt;box&lt;/b&gt;",
                           "background:#a6cee3", "alt=\"Scene 0, truth\"", "alt=\"Scene 0, prediction\""})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_EQ(occurrences(page, "<img "), 4);
  EXPECT_THAT(page_of(example_run("lenet")), Not(HasSubstr(">Scenes<")));
}

TEST(ReportPage, TellsTheUnionsOfASegmentation) {
  run::RunData run = example_run("rooms");
  EXPECT_THAT(page_of(run), HasSubstr(">Found, by class<"));
  EXPECT_THAT(page_of(run), Not(HasSubstr("mIoU")));
  run::Metrics line{.subset = data::Subset::test, .mean_iou = 0.8125};
  line.class_iou.assign(run.confusion->classes.size(), 0.375);
  line.class_iou[0] = std::nan("");  // does not occur
  run.metrics.push_back(line);
  const std::string page = page_of(run);
  for (const char* part : {"<b>0.8125</b><span>test mIoU", ">Intersection over union, by class<", "37.5 %"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("Found, by class")));
}

TEST(ReportPage, NamesWhatARunCountsASecond) {
  const run::RunData images = example_run("lenet"), clouds = example_cloud_run("minkunet14a");
  EXPECT_THAT(page_of(images), HasSubstr("<b>14.3k</b><span>mean examples/s</span>"));
  EXPECT_THAT(page_of(clouds), HasSubstr("<b>14.3k</b><span>mean voxels/s</span>"));
  EXPECT_THAT(page_of(clouds), HasSubstr("<h3>Throughput</h3><span class=\"muted\">voxels/s</span>"));
  EXPECT_THAT(page_of(clouds), Not(HasSubstr("examples/s")));
  const run::RunData alike[] = {clouds, clouds}, mixed[] = {images, clouds};
  EXPECT_THAT(report_page(alike), HasSubstr(">mean voxels/s</th>"));
  EXPECT_THAT(report_page(alike), HasSubstr("<td class=\"n\">14.3k</td>"));
  EXPECT_THAT(report_page(mixed), HasSubstr(">mean examples/s, voxels/s</th>"));
  EXPECT_THAT(report_page(mixed), HasSubstr("<td class=\"n\">14.3k voxels/s</td>"));
}

TEST(ReportPage, NeedsNothingFromOutside) {
  const std::string page = page_of(example_run("a")) + page_of(example_cloud_run("b"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"));
  for (const char* outside : {"<link", "href=", "src=\"http", "@import", "url(http", "fetch(", "XMLHttpRequest"})
    EXPECT_THAT(page, Not(HasSubstr(outside))) << outside;
}

TEST(ReportPage, ShowsWhateverARunIsCalledAsText) {
  const std::string evil = "<script>alert('1')</script>\"&";
  run::RunData run = example_run(evil, evil);
  run.config = "name = \"" + evil + "\"";
  run.summary->model = run.summary->dataset = run.summary->state = run.summary->hash = evil;
  run.summary->fingerprint = {{evil, evil}};
  for (auto& name : run.confusion->classes) name.insert(0, evil);
  for (auto& name : run.samples.classes) name.insert(0, evil);
  run.summary->speedup = {{1, 8, 0.1, 1, run::Phases{.forward = 0.1}}};
  const run::RunData other = example_run("</title><img src=x onerror=alert(2)>", "1 thread", 'b');
  const run::RunData runs[] = {run, other};
  for (const std::string& page : {page_of(run), report_page(runs)}) {
    EXPECT_EQ(occurrences(page, "<script"), 1);  // our own
    EXPECT_EQ(occurrences(page, "</script"), 1);
    EXPECT_EQ(occurrences(page, "</title"), 1);
    EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;"));
    EXPECT_THAT(page, Not(HasSubstr("<img src=x")));
    EXPECT_THAT(page, Not(HasSubstr("alert('1')")));
  }
}

TEST(ReportPage, SaysThatRunsEndedWithTheSameWeights) {
  const run::RunData runs[] = {example_run("one"), example_run("two", "2 processes x 1 thread")};
  const std::string page = report_page(runs);
  EXPECT_THAT(page, HasSubstr("2 runs compared"));
  EXPECT_THAT(page, HasSubstr("Identical."));
  EXPECT_THAT(page, HasSubstr("All 2 runs ended with the same weights"));
  EXPECT_THAT(page, HasSubstr("placement.description"));  // what is not the same
  EXPECT_THAT(page, Not(HasSubstr(">schedule.name<")));   // what is
  EXPECT_EQ(occurrences(page, "data-toggles="), 2);
}

TEST(ReportPage, WarnsWhereRunsOfOneRecipeEndedInDifferentWeights) {
  run::RunData runs[] = {example_run("one"), example_run("two", "2 threads", 'b'), example_run("three"),
                         example_run("four", "2 threads", 'c')};
  runs[3].summary->recipe = std::string(64, 'f');
  const std::string page = report_page(runs);
  EXPECT_THAT(page, HasSubstr("Not the same weights."));
  EXPECT_THAT(page, HasSubstr("<code>aaaaaaaaaaaa</code> one, three"));
  EXPECT_THAT(page, HasSubstr("<code>bbbbbbbbbbbb</code> two"));
  EXPECT_THAT(page, Not(HasSubstr("<code>cccccccccccc</code> four")));
  EXPECT_THAT(page, Not(HasSubstr("Identical.")));
}

TEST(ReportPage, ExpectsTheSameWeightsOfNoOtherRuns) {
  using Change = void (*)(run::Summary&);
  const Change changes[] = {
      [](run::Summary& other) { other.recipe = std::string(64, 'f'); },
      [](run::Summary& other) { other.recipe.clear(); },
      [](run::Summary& other) { other.fingerprint[3].second = "avx2"; },
      [](run::Summary& other) { other.steps = 100; },  // stopped early
  };
  for (const Change change : changes) {
    run::RunData runs[] = {example_run("one"), example_run("two", "2 threads", 'b'), example_run("three")};
    change(*runs[1].summary);
    runs[1].config += "momentum = 0.9\n";
    const std::string page = report_page(runs);
    EXPECT_THAT(page, Not(HasSubstr("Not the same weights.")));
    EXPECT_THAT(page, HasSubstr("Identical.</strong> <span>2 of 3 runs ended with the same weights"));
    EXPECT_THAT(page, HasSubstr(">placement.momentum<"));
    EXPECT_THAT(report_page({runs, 2}), Not(HasSubstr("id=\"verdict\"")));
  }
}

TEST(ReportPage, SaysNothingOfWeightsThatOnlyOneRunHas) {
  run::RunData runs[] = {example_run("one"), example_run("two")};
  runs[1].summary->hash.clear();
  EXPECT_THAT(report_page(runs), Not(HasSubstr("id=\"verdict\"")));
}

TEST(ReportPage, LeavesOutWhatARunDoesNotHold) {
  run::RunData run = example_run("bare");
  run.summary.reset();
  run.confusion.reset();
  run.samples = {};
  run.config.clear();
  std::erase_if(run.metrics, [](const run::Metrics& line) { return line.subset == data::Subset::test; });
  for (auto& line : run.metrics) line = {.step = line.step, .loss = line.loss, .seconds = line.seconds};
  const std::string page = page_of(run);
  EXPECT_THAT(page, HasSubstr("<h3>Loss"));
  for (const char* missing :
       {"<h3>Accuracy", "Confusion", "Samples", "Set-up", "Speedup<", "time goes", "test accuracy"})
    EXPECT_THAT(page, Not(HasSubstr(missing))) << missing;
}

TEST(ReportPage, OfARunThatHasJustBegunSaysSo) {
  const std::string page = page_of({.name = "empty"});
  EXPECT_THAT(page, HasSubstr("Nothing has been measured yet."));
  EXPECT_THAT(page, Not(HasSubstr("<svg")));
}

TEST(ReportPage, OfOneLineShowsItAsAPoint) {
  const std::string page = page_of({.name = "one", .metrics = {{.step = 1, .loss = 2.3, .seconds = 0.1}}});
  EXPECT_THAT(page, HasSubstr("<circle"));
  EXPECT_THAT(page, HasSubstr("aria-label=\"Loss by step. train: 2.3.\""));
}

TEST(ReportPage, StandsALossThatIsNoNumber) {
  run::RunData run = example_run("nan");
  for (auto& line : run.metrics) line.loss = std::nan("");
  run.summary->train_loss = run.summary->test_loss = std::nan("");
  const std::string page = page_of(run);
  EXPECT_THAT(page, HasSubstr("<b>nan</b><span>test loss"));
  EXPECT_THAT(page, HasSubstr("nothing measured yet"));
}

TEST(ReportPage, ShowsSpeedupAndWhereTheTimeWent) {
  run::RunData run = example_run("fast");
  run.summary->speedup = {{1, 256, 0.033, 1, run::Phases{.data = 0.003, .forward = 0.03}}, {2, 256, 0.0172, 1.92, {}}};
  const std::string page = page_of(run);
  EXPECT_THAT(page, HasSubstr("data-series=\"ideal\""));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\">17.2 ms</td><td class=\"n\">1.92</td><td class=\"n\">2</td>"));
  EXPECT_THAT(page, HasSubstr("forward 30 ms, 90.9 %; data 3 ms, 9.1 %"));
}

TEST(ReportPage, TellsALargeConfusionMatrixInWords) {
  run::RunData run{.name = "many", .confusion = run::Confusion{}};
  for (int c = 0; c < 100; ++c) {
    run.confusion->classes.push_back("class " + std::to_string(c));
    run.confusion->counts.emplace_back(100, 0)[(c + (c == 7)) % 100] = 50;
  }
  const std::string page = page_of(run);
  EXPECT_THAT(page, Not(HasSubstr("<table class=\"matrix\"")));
  EXPECT_THAT(page, HasSubstr("<b>class 7</b> taken for <b>class 8</b>: 50 of 50"));
}

TEST(ReportPage, NeedsARun) {
  EXPECT_THAT(error_of([] { report_page({}); }), HasSubstr("got no runs"));
}

}  // namespace
}  // namespace lockstep::report
