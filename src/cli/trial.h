// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "lockstep/run/config.h"
#include "lockstep/run/metrics.h"

namespace lockstep::cli {

/// A short training in processes of its own, for the commands that compare trainings.
struct Trial {
  run::Config config;
  int processes = 1;
  bool apart = false;      // each process trains by itself, on a device of its own, at the same time
  bool hashes = false;     // of every tensor after every step
  bool evaluated = false;  // on the test set, at the end
};

/// The first steps of a trial only warm up.
inline constexpr int64_t kWarmUpSteps = 3;

struct TrialResult {
  std::string placement;
  int64_t batch = 0;
  int64_t replicas = 0;
  std::vector<double> step_seconds;
  std::optional<run::Phases> phases;  // of a step, after the first ones
  double train_loss = 0;
  double train_accuracy = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double seconds = 0;
  std::vector<std::string> names;                // of tensors
  std::vector<std::vector<std::string>> hashes;  // [step][tensor]
  std::vector<double> losses;                    // [step]
};

/// A trial that ended badly; it has said why itself.
class TrialFailed : public std::runtime_error {
 public:
  TrialFailed(int exit_code, const std::string& what) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Runs a trial's processes through the launcher, to their end. Throws TrialFailed.
TrialResult run_trial(const Trial& trial);

/// Throws Error where a table's file (JSON) or a chart's files (their stem) can't be written, before the trials that
/// fill them. Empty: none.
void check_results(const std::string& json, const std::string& chart);

/// The hidden command that those processes run.
void setup_trial(CLI::App& app, Command& chosen);

}  // namespace lockstep::cli
