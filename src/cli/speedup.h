// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/config_options.h"

namespace lockstep::cli {

struct SpeedupOptions {
  ConfigOptions config;
  std::vector<int64_t> batches;
  std::vector<int64_t> devices;
  int rounds = 3;
  bool apart = false;
  std::string json;
  std::string chart;
};

/// `lockstep speedup MODEL --batch 256,512 --devices 1,2`: how a step gets faster with devices, and where the rest of
/// its time goes.
void setup_speedup(CLI::App& app, Command& chosen);
int speedup(const SpeedupOptions& options);

}  // namespace lockstep::cli
