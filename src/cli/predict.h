// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep::cli {

struct PredictOptions {
  std::string path;
  std::vector<std::string> files;
  std::string model;
  std::string data;
  std::string out;
  std::string png;
  std::string labels;
  std::string devices;
  int64_t top = 3;
  bool json = false;
};

/// `lockstep predict CHECKPOINT FILE...`: what a network makes of images, of tensors in a .pt file, or of clouds.
void setup_predict(CLI::App& app, Command& chosen);
int predict(const PredictOptions& options);

}  // namespace lockstep::cli
