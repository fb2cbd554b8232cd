// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands/commands.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/report/curves.h"
#include "lockstep/report/html.h"
#include "lockstep/run/run_files.h"

namespace lockstep::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
  std::string chart;
};

// Into report.html where nobody names a file: in the folder of a single run, else in the current one.
int report(const ReportOptions& options) {
  const auto runs = run::read_runs({options.runs.begin(), options.runs.end()});
  std::filesystem::path output = options.output;
  if (output.empty()) output = runs.size() == 1 ? run::Folder{options.runs[0]}.report() : "report.html";
  write_file(output, report::report_page(runs));
  std::printf("%s\n", output.c_str());
  if (!options.chart.empty()) {
    report::write_curves(std::filesystem::path(options.chart), runs);
    std::printf("%s.svg\n%s.png\n", options.chart.c_str(), options.chart.c_str());
  }
  return 0;
}

}  // namespace

void setup_report(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "Write one HTML page on one run, or on several compared");
  command->footer("As in: lockstep report runs/lenet, or: lockstep report runs/* -o compared.html");
  command->add_option("RUN", options->runs, "Folders of runs")->required();
  command->add_option("-o,--output", options->output,
                      "The page; default: report.html, in the run's folder if there is one run");
  command->add_option("--chart", options->chart,
                      "Loss and accuracy of the runs as pictures: this with .svg and .png added");
  command->callback([options, &chosen] { chosen = [options] { return report(*options); }; });
}

}  // namespace lockstep::cli
