// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/command.h"

namespace lockstep::cli {

struct SelftestOptions {
  std::string backend = "all";
  int threads = 0;  // 0: the cores that this process has for itself, 2 to 8
  double timeout = 60;
  bool bandwidth = false;
};

/// `lockstep selftest`, alone or in every process of a run: every collective on every backend.
void setup_selftest(CLI::App& app, Command& chosen);

/// 0 when all is well, 1 when a check failed on some rank. Throws Error when the backend asked for can't be used here.
int selftest(const SelftestOptions& options);

}  // namespace lockstep::cli
