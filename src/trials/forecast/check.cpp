// SPDX-License-Identifier: Apache-2.0
// Forecasts beside what was measured.
#include <cmath>
#include <vector>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/report/format.h"
#include "lockstep/trials/forecast.h"
#include "trials/step_times.h"

namespace lockstep::trials {
namespace {

struct CheckedRounds {
  StepTimes times = {};
  run::Phases phases = {};
  int phase_rounds = 0;
  std::vector<double> peaks = {};
};

Trial trial_of(const ForecastRow& row, const ForecastOptions& options) {
  Trial trial{.config = options.config, .processes = static_cast<int>(row.processes)};
  run::Config& config = trial.config;
  config.devices = text("cpu:", row.threads);
  config.split = row.split;
  config.blocks.clear();
  config.scale_batch = false;
  config.batch = row.batch;
  config.replicas = row.replicas;
  config.epochs = 0;
  config.steps = options.profile_steps;
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

void check(ForecastResult& result, const ForecastOptions& options,
           const std::function<void(const std::string&)>& on_round) {
  std::vector<CheckedRounds> all(result.rows.size());
  for (int round = 1; round <= options.rounds; ++round)
    for (size_t r = 0; r < all.size(); ++r) {
      const ForecastRow& row = result.rows[r];
      if (!can_check(row, options)) continue;
      const TrialResult found = run_trial(trial_of(row, options));
      const double seconds = all[r].times.add_round(found);
      all[r].peaks.push_back(found.peak_mib);
      if (found.phases) {
        all[r].phases += *found.phases;
        ++all[r].phase_rounds;
      }
      if (on_round)
        on_round(text("check ", round, " of ", options.rounds, ": ", name_of(row), ": ",
                      report::fixed(1e3 * seconds, 1), " ms a step"));
    }
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].times.empty()) continue;
    ForecastRow& row = result.rows[r];
    row.measured = all[r].times.mean();
    row.measured_mib = median(all[r].peaks);
    if (all[r].phase_rounds > 0) row.measured_phases = all[r].phases /= all[r].phase_rounds;
  }
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
