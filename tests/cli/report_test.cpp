// SPDX-License-Identifier: Apache-2.0
// `lockstep report` as its users see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/program.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/pictures/png.h"
#include "lockstep/run/run_files.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class ReportCommand : public testing::Test {
 protected:
  std::string make_run(const std::string& name) {
    fs::create_directory(folder / name);
    auto writer = run::MetricsWriter::create(folder / name / "metrics.jsonl");
    for (int step = 1; step <= 3; ++step) writer.append({.step = step, .loss = 1. / step, .seconds = step * 1.});
    return folder / name;
  }

  test::TemporaryFolder folder;
};

TEST_F(ReportCommand, WritesAPageIntoTheFolderOfItsRun) {
  const auto ended = run_program({"report", make_run("lenet")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, (folder / "lenet/report.html").string() + "\n");
  EXPECT_THAT(read_file(folder / "lenet/report.html"), HasSubstr("<title>lenet - Lockstep</title>"));
}

TEST_F(ReportCommand, ComparesSeveralRuns) {
  const std::string page = folder / "compared.html";
  const auto ended = run_program({"report", make_run("one"), make_run("two"), "-o", page});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, page + "\n");
  EXPECT_THAT(read_file(page), HasSubstr("2 runs compared"));
}

TEST_F(ReportCommand, DrawsTheCurvesOfSeveralRunsIntoOnePicture) {
  const std::string chart = folder / "curves";
  const auto ended =
      run_program({"report", make_run("one"), make_run("two"), "-o", folder / "page.html", "--chart", chart});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(chart + ".svg\n" + chart + ".png\n"));
  EXPECT_THAT(read_file(chart + ".svg"), AllOf(HasSubstr("one, train"), HasSubstr("two, train")));
  EXPECT_EQ(pictures::decode_png(read_file(chart + ".png"), "curves.png").width, 1920);
}

TEST_F(ReportCommand, AnswersAMistakeWithOneLineAndExitCode2) {
  const std::string damaged = make_run("damaged");
  write_file(damaged + "/metrics.jsonl", "{}\n");
  fs::create_directory(folder / "empty");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"report"}, "RUN is required"},
      {{"report", folder / "none"}, "is not there, expected the folder of a run"},
      {{"report", folder / "empty"}, "holds neither metrics.jsonl nor summary.json"},
      {{"report", damaged}, "metrics.jsonl:1: has neither 'step' nor 'epoch'"},
      {{"report", make_run("fine"), "-o", folder / "none/page.html"}, "No such file or directory"},
      {{"report", make_run("fine"), "--outptu=x"}, "unknown option '--outptu=x' (did you mean '--output'?)"},
  };
  for (const auto& [arguments, message] : cases) {
    const auto ended = run_program(arguments);
    EXPECT_EQ(ended.exit_code, 2) << message;
    EXPECT_THAT(ended.err, HasSubstr(message));
    EXPECT_THAT(lines_of(ended.err), testing::SizeIs(1));
    EXPECT_THAT(ended.out, IsEmpty());
  }
}

}  // namespace
}  // namespace lockstep::cli
