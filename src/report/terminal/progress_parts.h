// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/report/progress.h"

namespace lockstep::report {

/// (steps done, all steps) of the current epoch where its length is known, else of the run.
std::pair<int64_t, int64_t> part_of_epoch(const Position& position);

/// "epoch 3/10", "epoch 3", or nothing.
std::string epoch_of(const Position& position);
/// "117/235"
std::string step_of(const Position& position);
/// "loss 0.412", or nothing.
std::string figure_of(const char* name, const std::optional<double>& value);

/// The line of a bar, at most `width` columns: what does not fit is left out, the least useful first. With `unicode`
/// the bar is drawn with lines, else with # and -.
std::string progress_bar(const Position& position, std::optional<double> examples_per_second,
                         std::optional<double> seconds_left, std::string_view unit, int width, bool unicode);

/// How fast a run is, from what it did in the last seconds and since its start.
class Pace {
 public:
  void add(double now, const Position& position);
  /// Of the last seconds. None until there are two positions.
  std::optional<double> examples_per_second() const;
  /// For the rest of the run at the pace since this process began with it.
  std::optional<double> seconds_left(double now) const;

 private:
  struct Moment {
    double time;
    int64_t step, examples;
  };
  std::optional<Moment> first_, window_, next_window_, last_;
  int64_t steps_ = 0;
};

}  // namespace lockstep::report
