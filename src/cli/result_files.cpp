// SPDX-License-Identifier: Apache-2.0
#include "cli/result_files.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "lockstep/base/detail/file.h"

namespace lockstep::cli {

void ResultFiles::add_options(CLI::App& command, const std::string& group, const std::string& chart_help) {
  command.add_option("--json", json, "The table as JSON into this file")->group(group);
  command.add_option("--chart", chart, chart_help)->group(group);
}

void ResultFiles::check() const {
  if (!json.empty()) check_writable(json);
  if (chart.empty()) return;
  for (const char* suffix : {".svg", ".png"}) check_writable(chart + suffix);
}

void ResultFiles::write(const report::Table& table, const report::Figure& figure, report::FigureSize size) const {
  if (!json.empty()) write_file(json, table.to_json() + "\n");
  if (!chart.empty()) report::write_figures(chart, {&figure, 1}, size);
}

}  // namespace lockstep::cli
