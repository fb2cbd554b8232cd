// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// What the person sees who started a run and waits.
namespace lockstep::report {

/// `automatic`: a bar where the output is a terminal that can redraw a line, else a line every few seconds.
enum class ProgressStyle { automatic, bar, lines, quiet };

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::automatic;
  int fd = 2;                                     // stays the caller's
  std::chrono::milliseconds bar_interval{100};    // the bar is drawn at most so often,
  std::chrono::milliseconds line_interval{5000};  // and a line written
  std::string unit = "images";                    // what is counted a second
  /// Seconds of a clock that never goes back; steady_clock where it is empty.
  std::function<double()> now = {};
};

/// Where a run is. Steps count from the run's start, a resumed one's too.
struct Position {
  int64_t step = 0;             // done
  int64_t steps = 0;            // of the whole run; 0: not known
  int64_t steps_per_epoch = 0;  // 0: not known
  int64_t examples = 0;         // done by this process and its peers since the run's start or its resume
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};
};

/// Draws on one line of a terminal, or writes plain lines. For one thread of one process (rank 0): the others have
/// none. Log messages of this process appear above the bar while it lives (see ScopedLogSink). Output that fails is
/// dropped: a closed terminal stops no training.
class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  Progress(Progress&&) noexcept;
  Progress& operator=(Progress&&) noexcept;
  /// As finish().
  ~Progress();

  /// Cheap: what is drawn more often than the intervals say is left out.
  void update(const Position& position);

  /// A line that stays, above the bar: "epoch 1: loss 0.52, accuracy 0.81". Not when quiet.
  void line(std::string_view words);

  /// Takes the bar off the terminal. Lines stay. Later updates draw again.
  void finish();

 private:
  class Display;
  std::unique_ptr<Display> display_;
};

}  // namespace lockstep::report
