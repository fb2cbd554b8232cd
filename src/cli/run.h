// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep::cli {

struct RunOptions {
  int processes = 0;
  std::vector<std::string> hosts;
  std::optional<int> rank_offset;
  std::optional<int> world_size;
  int port = 29511;
  std::optional<double> timeout;
  double grace = 5;
  bool no_prefix = false;
  /// A signal that asked for the end is a failure even where every rank ended well, as one does that was about to.
  bool ends_on_signal = false;
  std::vector<std::string> program;
};

/// `lockstep run -n 4 -- program args...`: starts the ranks of one host and stays until they have ended.
void setup_run(CLI::App& app, Command& chosen, const std::vector<std::string>& program);

/// The exit code of the first rank that failed, or 0 (128 + signal, see ends_on_signal). Throws Error on options that
/// don't fit together.
int run(const RunOptions& options);

}  // namespace lockstep::cli
