// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/run/config.h"
#include "lockstep/run/metrics.h"
#include "lockstep/train/trainer.h"

/// Short trainings that are compared. Each runs in new processes of this very program, which the launcher starts
/// (launch/launcher.h says what it does to signals, and that it wants a process without other threads). So a program
/// that calls verify(), speedup(), sweep() or run_trial() begins its main() with serve():
///
///     int main() {
///       lockstep::pin_numerics();
///       if (lockstep::trials::serve()) return 0;
///       ...
///     }
namespace lockstep::trials {

/// Makes what a configuration names: train::make_task, or a function that knows networks and data of one's own.
using MakeTask = std::function<train::Task(const run::Config&)>;

/// In a process that was started for a trial: trains, and returns true. False in any other. What goes wrong is thrown:
/// Error for a mistake, TrainingError and the like for a training that failed, which should end the process with exit
/// code 1. Throws Error, too, where the task does not fit the configuration.
bool serve(const MakeTask& make_task = train::make_task);

/// One training in processes of its own.
struct Trial {
  run::Config config{};
  int processes = 1;
  bool apart = false;      ///< each process trains by itself, on a device of its own, at the same time
  bool hashes = false;     ///< of every tensor after every step
  bool evaluated = false;  ///< on the test set, at the end
  bool traced = false;     ///< with a timeline of every device
  /// A command that starts this very program once for each process, on hosts that it knows, in place of the launcher
  /// here: the trial is found by the environment that it hands on. It ends when all have.
  std::vector<std::string> launcher{};
};

/// What a device did in one step, in seconds from its beginning.
struct DeviceTimeline {
  struct Span {
    double begin = 0;
    double end = 0;
    std::string phase{};  ///< forward, backward, update, ...
  };
  std::string device{};
  std::vector<Span> spans{};
};

/// A step of a trial that was traced.
struct TracedStep {
  double seconds = 0;
  std::vector<DeviceTimeline> devices{};

  /// The share of the devices' time in which a device computed nothing while replicas still went through the network:
  /// a pipeline's bubble, or what uneven shares leave.
  double bubble() const;
  /// In which it computed nothing at all.
  double idle() const;
  /// In which it did this; empty: anything.
  double share_of(const std::string& phase) const;
};

/// The first steps of a trial only warm up.
inline constexpr int64_t warm_up_steps = 3;

struct TrialResult {
  std::string placement;
  int64_t batch = 0;
  int64_t replicas = 0;
  std::vector<double> step_seconds;
  std::optional<run::Phases> phases;  ///< of a step, after the first ones
  double train_loss = 0;
  double train_accuracy = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double seconds = 0;
  std::vector<std::string> names;                ///< of tensors
  std::vector<std::vector<std::string>> hashes;  ///< [step][tensor]
  std::vector<double> losses;                    ///< [step]
  std::string hash;                              ///< of the weights at the end
  std::string why_split;                         ///< Trainer::why_split
  int64_t bytes_sent = 0;                        ///< in a step, by the process that sent most
  double peak_mib = 0;                           ///< of the process that used most memory
  std::vector<TracedStep> traced;                ///< steps after the first ones, without the last
};

/// A trial that ended badly; its processes have said why on standard error.
class TrialFailed : public std::runtime_error {
 public:
  TrialFailed(int exit_code, const std::string& what) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Runs a trial's processes to their end. Throws TrialFailed, and Error where this process was started for a trial
/// itself.
TrialResult run_trial(const Trial& trial);

}  // namespace lockstep::trials
