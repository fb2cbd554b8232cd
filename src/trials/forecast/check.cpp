// SPDX-License-Identifier: Apache-2.0
// Forecasts beside what was measured.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/report/format.h"
#include "lockstep/trials/forecast.h"
#include "trials/forecast/rounds.h"

namespace lockstep::trials {
namespace {

// One process has no links to limit.
std::vector<std::string> launcher_of(const ForecastRow& row, const ForecastOptions& options) {
  return row.processes > 1 ? options.launcher : std::vector<std::string>();
}

bool same_placement(const ForecastRow& a, const ForecastRow& b) {
  return a.processes == b.processes && a.threads == b.threads && a.split == b.split && a.batch == b.batch &&
         a.replicas == b.replicas;
}

Trial trial_of(const ForecastRow& row, const ForecastOptions& options, int64_t steps) {
  Trial trial{
      .config = options.config, .processes = static_cast<int>(row.processes), .launcher = launcher_of(row, options)};
  run::Config& config = trial.config;
  config.devices = text("cpu:", row.threads);
  config.split = row.split;
  config.blocks.clear();
  config.scale_batch = false;
  config.batch = row.batch;
  config.replicas = row.replicas;
  config.epochs = 0;
  config.steps = steps;
  return trial;
}

std::string name_of(const ForecastRow& row) {
  return text(row.processes > 1 ? text(row.processes, "x", row.threads) : std::to_string(row.threads),
              row.split == "data" ? "" : ":" + row.split);
}

}  // namespace

bool can_check(const ForecastRow& row, const ForecastOptions& options) {
  if (row.devices > cpu_info().cores) return false;
  return row.processes == 1 || (options.link == "measure" && !comm::backends().empty());
}

struct Checker::Placed {
  ForecastRow row;
  Trial trial;
  StepTimes times = {};
  run::Phases phases = {};
  int phase_rounds = 0;
  std::vector<double> peaks = {}, seconds = {};
};

Checker::Checker(const ForecastResult& result, const ForecastOptions& options, int64_t steps) {
  for (const ForecastRow& row : result.rows) {
    const auto same = [&](const Placed& placed) { return same_placement(placed.row, row); };
    if (can_check(row, options) && std::ranges::none_of(placed_, same))
      placed_.push_back({.row = row, .trial = trial_of(row, options, steps)});
  }
}

Checker::~Checker() = default;

void Checker::measure_round(const std::function<void(const std::string&)>& on_trial) {
  for (Placed& placed : placed_) {
    const TrialResult found = run_trial(placed.trial);
    placed.seconds.push_back(placed.times.add_round(found));
    placed.peaks.push_back(found.peak_mib);
    if (found.phases) {
      placed.phases += *found.phases;
      ++placed.phase_rounds;
    }
    if (on_trial)
      on_trial(text(name_of(placed.row), ": ", report::fixed(1e3 * placed.seconds.back(), 1), " ms a step"));
  }
}

void Checker::fill(ForecastResult& result) const {
  for (ForecastRow& row : result.rows) {
    const auto found = std::ranges::find_if(placed_, [&](const Placed& one) { return same_placement(one.row, row); });
    if (found == placed_.end() || found->times.empty()) continue;
    row.measured = found->times.mean();
    row.measured_spread = deviation(found->seconds);
    row.measured_mib = median(found->peaks);
    run::Phases phases = found->phases;
    if (found->phase_rounds > 0) row.measured_phases = phases /= found->phase_rounds;
  }
}

void check(ForecastResult& result, const ForecastOptions& options,
           const std::function<void(const std::string&)>& on_round) {
  Checker checker(result, options, options.profile_steps > 0 ? options.profile_steps : result.profile.steps);
  for (int round = 1; round <= options.rounds; ++round)
    checker.measure_round([&](const std::string& line) {
      if (on_round) on_round(text("check ", round, " of ", options.rounds, ": ", line));
    });
  checker.fill(result);
}

std::string phase_that_was_off(const ForecastRow& row) {
  if (!row.measured || !row.measured_phases || row.holds()) return "";
  const run::Phases forecast = phases_of(row.step);
  std::string off;
  double most = 0;
  for (const auto& [name, member] : run::phase_members) {
    const double difference = std::abs(*row.measured_phases.*member - forecast.*member);
    if (difference <= most) continue;
    most = difference;
    off = name;
  }
  return off;
}

}  // namespace lockstep::trials
