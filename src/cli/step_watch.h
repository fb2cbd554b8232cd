// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/run/config.h"
#include "lockstep/train/trainer.h"
#include "lockstep/trials/detail/step_phases.h"
#include "lockstep/trials/forecast.h"

namespace lockstep::cli {

/// What a step of a training was forecast to take, and what it takes.
class StepWatch {
 public:
  /// By a file of `lockstep forecast --save`, or where it is empty by the remembered profile. What can't be forecast is
  /// an Error where somebody has `asked` for it, else nothing is said.
  StepWatch(bool asked, const std::string& file);

  /// Where it was asked for without a file: measures what is not remembered, and remembers it. It starts processes, so
  /// it is called before all else. A process that a launcher has started measures nothing.
  void measure(const run::Config& config);
  /// Collective. Call it before the trainer runs, once.
  void begin(train::Trainer& trainer, const comm::Group& group);
  /// Empty where nothing was forecast, or too few steps were made.
  std::string verdict() const;

 private:
  void forecast_remembered(const run::Config& config, int64_t processes);

  bool asked_;
  std::optional<trials::Profile> profile_;
  std::optional<trials::ForecastRow> forecast_;
  trials::StepPhases phases_;
};

}  // namespace lockstep::cli
