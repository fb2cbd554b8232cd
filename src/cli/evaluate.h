// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep::cli {

struct EvaluateOptions {
  std::string path;
  std::string model;
  std::string data;
  std::string split = "test";
  std::string devices;
  int64_t batch = 0;
  int64_t replicas = 0;
  int64_t examples = 0;
  std::vector<std::string> metrics;
  bool points = false;
  bool json = false;
};

/// `lockstep evaluate CHECKPOINT --data D`: on all devices, each example once.
void setup_evaluate(CLI::App& app, Command& chosen);
int evaluate(const EvaluateOptions& options);

}  // namespace lockstep::cli
