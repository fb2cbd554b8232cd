// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command.h"
#include "cli/config_options.h"

namespace lockstep::cli {

struct TrainOptions {
  ConfigOptions config;
  bool resumes = false;  // --resume, with a path or without: then it is the folder of --out
  bool overwrite = false;
};

/// `lockstep train MODEL`: alone or as each process of a job.
void setup_train(CLI::App& app, Command& chosen);

/// 0, or 128 + the number of the signal that stopped it. Throws Error for a user's mistakes and TrainingError where
/// training failed.
int train_model(const TrainOptions& options);

}  // namespace lockstep::cli
