// SPDX-License-Identifier: Apache-2.0
// What a forecast asks processes of this program to measure: passes of one replica, shares that come, links.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "lockstep/parallel/forecast.h"
#include "lockstep/run/config.h"
#include "lockstep/run/detail/json.h"
#include "lockstep/train/profile.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

inline constexpr double kMebibyte = 1 << 20;

/// In a process that was started for it: measures and answers.
void answer_measurement(const run::Json& request, const std::filesystem::path& folder, const MakeTask& make_task);

/// The most memory that this process has had, in KiB.
int64_t peak_kib();

/// train::profile_passes, in a process of its own.
struct MeasuredPasses {
  train::PassProfile passes{};
  double peak_mib = 0;  // of that process: one replica without a team
};
MeasuredPasses measure_passes(const run::Config& config);

/// train::coming_shares of each batch and number of replicas.
using Shares = std::vector<std::vector<int64_t>>;
std::vector<Shares> find_shares(const run::Config& config, const std::vector<std::pair<int64_t, int64_t>>& batches,
                                int64_t steps);

run::Json to_json(const parallel::StepCost& cost);
parallel::StepCost step_cost_from(const run::Json& json);
run::Json to_json(const parallel::LinkCost& link);
parallel::LinkCost link_from(const run::Json& json);

}  // namespace lockstep::trials
