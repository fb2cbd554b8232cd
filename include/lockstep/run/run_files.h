// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/pictures/image.h"
#include "lockstep/run/metrics.h"
#include "lockstep/run/scenes.h"

/// The folder of a run, `runs/NAME`, and the files in it that people and `lockstep report` look at.
namespace lockstep::run {

/// Where things lie in a run's folder. All of it may be missing but the folder.
struct Folder {
  std::filesystem::path folder;

  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path config() const { return folder / "config.toml"; }  // as resolved: every option, its value
  std::filesystem::path summary() const { return folder / "summary.json"; }
  std::filesystem::path confusion() const { return folder / "confusion.json"; }
  std::filesystem::path samples() const { return folder / "samples.json"; }
  std::filesystem::path scenes() const { return folder / "scenes.json"; }
  std::filesystem::path curves_svg() const { return folder / "curves.svg"; }
  std::filesystem::path curves_png() const { return folder / "curves.png"; }
  std::filesystem::path report() const { return folder / "report.html"; }
  std::filesystem::path tensorboard() const { return folder / "tb"; }
  std::filesystem::path checkpoint() const { return folder / "last.pt"; }
  std::filesystem::path previous_checkpoint() const { return folder / "previous.pt"; }
  std::filesystem::path weights() const { return folder / "weights.pt"; }
  std::filesystem::path safetensors() const { return folder / "weights.safetensors"; }  // the same weights

  /// Whether somebody would miss something here: metrics, a checkpoint, weights.
  bool holds_run() const;
  /// Removes what runs write, and leaves other files alone. Throws std::filesystem::filesystem_error.
  void remove_run() const;
};

/// One measurement of how training gets faster with devices, at one global batch size.
struct SpeedupRow {
  int devices = 1;
  int64_t batch = 0;  // of all devices together
  double seconds_per_step = 0;
  double speedup = 1;                 // against one device at the same batch
  std::optional<Phases> phases = {};  // where a step's time went
  std::optional<double> apart = {};   // of as many trainings on a device each that have nothing in common

  bool operator==(const SpeedupRow&) const = default;
};

/// `summary.json`: what a run was, and how it ended.
struct Summary {
  std::string name = {};
  std::string model = {};
  std::string dataset = {};
  std::string placement = {};      // "2 threads", "2 processes x 4 threads"
  std::string state = "finished";  // or "running", "interrupted", "failed: loss is NaN at step 12"
  std::vector<std::pair<std::string, std::string>> fingerprint = {};  // Fingerprint::items()
  /// Equal in runs that promise to end with the same weights, where their fingerprints are equal too: a hash of all
  /// that decides the result. Empty: no such promise.
  std::string recipe = {};
  std::string hash = {};  // SHA-256 of the weights, as `lockstep hash` prints it
  int replicas = 0;
  int devices = 0;
  int64_t batch = 0;
  int64_t parameters = 0;
  int64_t steps = 0;
  double epochs = 0;
  double seconds = 0;
  std::optional<double> train_loss = {};
  std::optional<double> train_accuracy = {};
  std::optional<double> test_loss = {};
  std::optional<double> test_accuracy = {};
  std::optional<double> test_mean_iou = {};  // of segmentation
  std::optional<double> examples_per_second = {};
  std::string unit = "examples";         // what is counted a second: of scenes whose points have classes "voxels"
  std::vector<SpeedupRow> speedup = {};  // where it was measured
  std::vector<std::string> events = {};  // what befell it: processes that were lost, and those that came
  std::string forecast = {};             // of a step's time, beside what it was, in words

  bool operator==(const Summary&) const = default;
};

/// `confusion.json`: counts[truth][prediction] of the test set.
struct Confusion {
  std::vector<std::string> classes;          // [C]
  std::vector<std::vector<int64_t>> counts;  // [C, C]

  bool operator==(const Confusion&) const = default;
};

/// One example of `samples.json`, with what the network makes of it. The file holds the image as base64 of a PNG.
struct Sample {
  int64_t id = 0;  // of the example in its data set
  pictures::Image image = {};
  int label = 0;
  int prediction = 0;
  double probability = 0;  // that the network gives its prediction

  bool operator==(const Sample&) const = default;
};

struct Samples {
  std::vector<std::string> classes = {};  // names of labels and predictions; [C], or empty: shown as numbers
  std::vector<Sample> samples = {};

  bool operator==(const Samples&) const = default;
};

/// Each file is replaced whole (written aside, synced, renamed). Throws Error when it can't be written, and on contents
/// that don't fit together: a confusion matrix that is not C x C, a label outside the classes.
void write_summary(const std::filesystem::path& file, const Summary& summary);
void write_confusion(const std::filesystem::path& file, const Confusion& confusion);
void write_samples(const std::filesystem::path& file, const Samples& samples);

/// Throws Error, naming the file and what was expected there, when it can't be read or holds something else. Unknown
/// keys are passed over, missing ones have the defaults above.
Summary read_summary(const std::filesystem::path& file);
Confusion read_confusion(const std::filesystem::path& file);
Samples read_samples(const std::filesystem::path& file);

/// All that a run's folder holds.
struct RunData {
  std::string name;  // the summary's, else the folder's
  std::vector<Metrics> metrics = {};
  std::string config = {};
  std::optional<Summary> summary = {};
  std::optional<Confusion> confusion = {};
  Samples samples = {};
  Scenes scenes = {};
};

/// Files that are missing are empty in the result. Throws Error when the folder is not there, or holds neither metrics
/// nor a summary (no run), and on a file that is damaged.
RunData read_run(const std::filesystem::path& folder);

/// What these runs count a second, each unit once: "images/s", or "images/s, voxels/s". Runs without a summary count
/// examples.
std::string pace_units(std::span<const RunData> runs);

/// Several runs, to be compared: where names are the same, the folders take their place. Throws as read_run.
std::vector<RunData> read_runs(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::run
