// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep::cli {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
};

/// `lockstep report RUN...`: one HTML page on the runs in these folders.
void setup_report(CLI::App& app, Command& chosen);

/// Writes the page to `output`, or where that is empty to report.html: in the folder of a single run, else in the
/// current one. Prints where it is. Throws Error on a folder that holds no run.
int report(const ReportOptions& options);

}  // namespace lockstep::cli
