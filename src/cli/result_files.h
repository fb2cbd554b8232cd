// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/report/figure.h"
#include "lockstep/report/table.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Where a command writes its table and chart besides printing; empty: nowhere.
struct ResultFiles {
  std::string json;   // a file
  std::string chart;  // the stem of .svg and .png

  /// --json and --chart. This must outlive the command.
  void add_options(CLI::App& command, const std::string& group, const std::string& chart_help);
  /// Throws Error where a file can't be written: before the work that fills it.
  void check() const;
  void write(const report::Table& table, const report::Figure& figure, report::FigureSize size = {}) const;
};

}  // namespace lockstep::cli
