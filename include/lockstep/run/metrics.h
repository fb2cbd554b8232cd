// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/data/subset.h"

/// `metrics.jsonl`: what was measured while a run went on, one JSON object a line, in the order of time.
namespace lockstep::run {

/// Where the time of a step went, in seconds: means over the steps since the line before and over the replicas, so that
/// they add up to the time of a step.
struct Phases {
  double data = 0;  // waiting for the loader
  double forward = 0;
  double backward = 0;
  double communication = 0;  // gradients between processes, as far as nothing hid it
  double update = 0;         // adding gradients up and applying the rule
  double wait = 0;           // waiting for the other replicas

  double sum() const { return data + forward + backward + communication + update + wait; }
  Phases& operator+=(const Phases& more);
  Phases& operator/=(double count);
  bool operator==(const Phases&) const = default;
};

/// The phases with their names, in the order in which they are drawn: first what computes, last what is lost.
inline constexpr std::array<std::pair<const char*, double Phases::*>, 6> phase_members{{
    {"forward", &Phases::forward},
    {"backward", &Phases::backward},
    {"update", &Phases::update},
    {"communication", &Phases::communication},
    {"data", &Phases::data},
    {"wait", &Phases::wait},
}};

inline Phases& Phases::operator+=(const Phases& more) {
  for (const auto& [name, member] : phase_members) this->*member += more.*member;
  return *this;
}

inline Phases& Phases::operator/=(double count) {
  for (const auto& [name, member] : phase_members) this->*member /= count;
  return *this;
}

/// One line. Figures of a train line are over all examples since the train line before it, those of a test line over
/// the whole test set. What was not measured is left out of the file.
struct Metrics {
  std::optional<int64_t> step = {};  // steps done since the run's start; resuming needs it
  std::optional<double> epoch = {};  // passes over the data done: 0.5 in the middle of the first, 1 at its end
  data::Subset subset = data::Subset::train;
  std::optional<double> loss = {};      // may be NaN or infinite: null in the file, read as NaN
  std::optional<double> accuracy = {};  // 0 to 1
  std::optional<double> mean_iou = {};  // of segmentation: the mean over classes of intersection / union
  std::vector<double> class_iou = {};   // [classes], NaN of one that does not occur: null in the file; or empty
  double seconds = 0;                   // since the run's start, without the time between a stop and a resume
  std::optional<double> lr = {};
  std::optional<double> examples_per_second = {};  // where points have classes their voxels: see Summary::unit
  std::optional<Phases> phases = {};
  std::optional<double> gradient_norm = {};
  std::optional<int> replicas = {};
  std::optional<int> devices = {};
  std::string event = {};  // what befell the run; such a line has no figures

  bool operator==(const Metrics&) const = default;
};

/// The mean of the examples a second over all steps that a run's training lines tell of, each line weighted by the time
/// that it took; none where no line has a pace.
std::optional<double> mean_pace(std::span<const Metrics> lines);

/// The object of one line, without a newline.
std::string to_json(const Metrics& metrics);

/// The inverse. Unknown keys are passed over. Throws Error, naming `where`, on anything but an object that has `split`,
/// `seconds` and one of `step` and `epoch`, with values of the right kind.
Metrics parse_metrics(std::string_view line, const std::string& where);

/// All lines of a file. A last line without its newline is what a killed run left and is skipped; so are empty lines.
/// Throws Error with file and line number on a bad line, and when the file can't be read.
std::vector<Metrics> read_metrics(const std::filesystem::path& file);

/// Appends lines to a file. One thread of one process writes (rank 0). A line is one write(2), so whoever reads along,
/// or kills the run, sees whole lines but for the last.
class MetricsWriter {
 public:
  /// Starts the file anew.
  static MetricsWriter create(const std::filesystem::path& file);
  /// Goes on with what a run left: cuts the file at its first line past `step` (the checkpoint's), and a half-written
  /// last line too, so that the resumed run leaves no step twice. Makes the file where it is missing. Throws Error on a
  /// bad line, as read_metrics.
  static MetricsWriter resume(const std::filesystem::path& file, int64_t step);

  /// Throws Error when the line can't be written whole (a full disk), after taking its half back out of the file.
  void append(const Metrics& metrics);

 private:
  MetricsWriter(std::filesystem::path file, int flags);

  std::filesystem::path file_;
  Descriptor out_;
};

}  // namespace lockstep::run
