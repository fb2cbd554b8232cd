// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/config_options.h"

namespace lockstep::cli {

struct SweepOptions {
  ConfigOptions config;
  std::vector<double> rates;
  std::vector<int64_t> devices;
  bool fixed_batch = false;
  std::string json;
  std::string chart;
};

/// `lockstep sweep --lr 0.05,0.1,0.2 --devices 1,2`: which learning rate suits which number of devices, whose batch
/// grows with them.
void setup_sweep(CLI::App& app, Command& chosen);
int sweep(const SweepOptions& options);

}  // namespace lockstep::cli
