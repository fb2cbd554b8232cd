// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "lockstep/report/progress.h"
#include "lockstep/run/metrics.h"
#include "lockstep/run/run_files.h"
#include "train/session/plan.h"

namespace lockstep::train {

struct Sums;

/// Everything that a run writes and shows: process 0 has one, and replica 0 calls it. Without a folder in the
/// configuration it writes no files. Its members throw TrainingError where a file can't be written.
class Recorder {
 public:
  Recorder(const Plan& plan, const std::optional<run::Checkpoint>& start,
           std::function<void(const EpochReport&)> on_epoch);
  ~Recorder();

  /// After each update; true where a line of metrics was written, over `line`.
  bool step(const StepReport& report, const Sums& line);
  void epoch(const EpochReport& report);
  void say(const std::string& line);
  /// What befell the run: said, a line of metrics of its own, and kept in the summary.
  void event(const std::string& event);
  void save(run::Checkpoint checkpoint);
  /// What a network makes of some examples of the test set. What fails there is a warning: the training is done.
  void samples(models::Classifier& network, c10::Device device);

  /// Waits for the last checkpoint.
  void finish_saving();
  /// weights.pt, the summary and the last curves.
  void finish(Outcome& outcome);
  /// The summary of a run that has failed. Never throws.
  void abandon(const std::string& why) noexcept;

  /// Since the run's start, without the time between a stop and a resume.
  double seconds() const;
  /// Of those, since the last line of metrics.
  double line_seconds() const { return seconds() - line_began_; }
  /// Whether all that decides the result has been the same since the run's start, and is known.
  bool has_one_recipe() const { return !summary_.recipe.empty(); }
  /// "; last.pt holds step 40", for the message of a failed run.
  std::string kept();

 private:
  struct Files;
  run::Metrics metrics_of(data::Subset subset, const run::TrainingCursor& cursor, double epochs) const;
  void go_on(const run::Checkpoint& start);
  void write(const run::Metrics& metrics);
  bool holds_test_of(int64_t step) const;
  void draw_curves();
  void write_summary(const std::string& state);
  void write_samples(models::Classifier& network, c10::Device device) const;
  void write_scenes(const run::Scenes& scenes) const;
  void write_confusion(const at::Tensor& matrix) const;

  const Plan& plan_;
  std::function<void(const EpochReport&)> on_epoch_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double seconds_before_ = 0;
  int64_t log_every_;
  double line_began_ = 0;
  double drawn_at_ = 0;
  int64_t examples_ = 0;  // trained on since the start or the resume
  report::Progress progress_;
  int64_t saved_step_ = -1;
  run::Summary summary_;
  std::unique_ptr<Files> files_;  // none without a folder
};

}  // namespace lockstep::train
