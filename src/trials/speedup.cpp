// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/speedup.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "lockstep/base/detail/median.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/device.h"
#include "lockstep/parallel/forecast.h"
#include "trials/forecast/rounds.h"
#include "trials/given.h"
#include "trials/step_times.h"

namespace lockstep::trials {
namespace {

constexpr int64_t kSteps = 12;

// One line of the table, with what all its rounds have measured.
struct Measured {
  int64_t batch;
  int64_t devices;
  StepTimes together = {};
  StepTimes apart = {};  // of as many trainings as devices; one device is that already
  run::Phases phases = {};
  int phase_rounds = 0;
  Measurements profiled = {};  // of one device, for forecasts

  const StepTimes& times_apart() const { return apart.empty() ? together : apart; }
  double speedup_apart(const Measured& base) const {
    return base.times_apart().over(times_apart()) * static_cast<double>(devices) / static_cast<double>(base.devices);
  }
};

run::Config config_of(const Measured& one, const SpeedupOptions& options) {
  run::Config config = options.config;
  config.replicas = same_replicas(config, *std::ranges::max_element(options.devices), one.batch);
  config.batch = one.batch;
  return config;
}

Trial trial_of(const Measured& one, const SpeedupOptions& options, bool gpus) {
  Trial trial{.config = config_of(one, options)};
  if (gpus) {
    trial.processes = static_cast<int>(one.devices);
    trial.config.devices = "cuda";
  } else {
    trial.config.devices = text("cpu:", one.devices);
  }
  return trial;
}

void check(const SpeedupOptions& options, bool gpus) {
  require(!options.devices.empty(), "speedup", "--devices is empty, expected numbers, as in 1,2,4");
  for (const auto& [name, values] : {std::pair("batch", &options.batches), {"devices", &options.devices}}) {
    for (const int64_t value : *values)
      require(value >= 1, "speedup", "--", name, " has ", value, ", expected 1 or more");
  }
  const auto most = *std::ranges::max_element(options.devices);
  require(!gpus || most <= static_cast<int64_t>(cuda_devices().size()), "speedup", "--devices has ", most,
          ", expected at most the ", cuda_devices().size(), " GPUs there are");
  require(options.rounds >= 1, "speedup", "--rounds is ", options.rounds, ", expected 1 or more");
}

// Why nothing is forecast, which is for threads of a CPU, beside one; empty: it is.
std::string no_forecast(const SpeedupOptions& options, bool gpus) {
  if (gpus) return "of GPUs there is none yet";
  if (cpu_info().cores < 2 || *std::ranges::max_element(options.devices) < 2) return "it is for two threads and more";
  if (std::ranges::count(options.devices, 1) == 0) return "it is made from a step on one device: --devices 1,...";
  if (comm::backends().empty()) return "this build has no backend that joins processes";
  if (options.config.split.starts_with("auto")) return "of split auto there is none yet";
  constexpr int64_t kLeast = warm_up_steps + 3;
  if (options.config.steps < kLeast)
    return text(options.config.steps, " steps are too few to tell where their time goes, expected ", kLeast,
                " or more");
  return "";
}

// One round of it.
SpeedupRound measure(Measured& one, const SpeedupOptions& options, bool gpus) {
  Trial trial = trial_of(one, options, gpus);
  const TrialResult result = run_trial(trial);
  SpeedupRound round{.batch = one.batch, .devices = one.devices, .seconds_per_step = one.together.add_round(result)};
  if (options.apart && one.devices > 1) {
    trial.apart = true;
    trial.processes = static_cast<int>(one.devices);
    if (!gpus) trial.config.devices = "cpu:1";
    round.seconds_per_step_apart = one.apart.add_round(run_trial(trial));
  }
  if (result.phases) {
    one.phases += *result.phases;
    ++one.phase_rounds;
  }
  if (one.devices == 1 && no_forecast(options, gpus).empty()) {
    one.profiled.one.add(result);
    one.profiled.add_crowded(trial.config);
  }
  return round;
}

std::vector<run::SpeedupRow> rows_of(std::vector<Measured>& all, bool apart) {
  std::vector<run::SpeedupRow> rows;
  for (Measured& one : all) {
    const auto base = std::ranges::find_if(all, [&](const Measured& other) { return other.batch == one.batch; });
    if (one.phase_rounds > 0) one.phases /= one.phase_rounds;
    rows.push_back({.devices = static_cast<int>(one.devices),
                    .batch = one.batch,
                    .seconds_per_step = one.together.mean(),
                    .speedup = base->together.over(one.together),
                    .phases = one.phase_rounds > 0 ? std::optional(one.phases) : std::nullopt,
                    .apart = apart ? std::optional(one.speedup_apart(*base)) : std::nullopt});
  }
  return rows;
}

std::vector<std::optional<double>> forecasts_of(const std::vector<Measured>& all, const SpeedupOptions& options) {
  std::vector<std::optional<double>> out;
  std::map<int64_t, Profile> profiles;  // by batch size
  for (const Measured& one : all)
    if (!one.profiled.one.phases.empty()) {
      run::Config config = config_of(one, options);
      config.devices = "cpu:1";
      config.split = "data";
      profiles.emplace(one.batch, make_profile(config, one.profiled));
    }
  for (const Measured& one : all) {
    const auto profile = profiles.find(one.batch);
    const bool known = profile != profiles.end() && one.devices <= cpu_info().cores;
    if (known)
      out.emplace_back(parallel::forecast_step(profile->second.cost,
                                               {.blocks = Placement({profile->second.replicas}),
                                                .devices = one.devices,
                                                .split = parallel::parse_split(options.config.split)},
                                               profile->second.slowdown)
                           .seconds);
    else
      out.emplace_back();
  }
  return out;
}

}  // namespace

SpeedupOptions with_defaults(SpeedupOptions options) {
  run::Config& config = options.config;
  if (!is_set(config, options.given, "steps")) config.steps = kSteps;
  require(config.steps > warm_up_steps, "speedup", "--steps is ", config.steps, ", expected more than ", warm_up_steps,
          ", which only warm up");
  if (!is_set(config, options.given, "epochs")) config.epochs = 0;
  run::check(config);
  if (options.batches.empty()) options.batches = {run::usual_batch(data::names_clouds(config.data))};
  check(options, !cuda_devices().empty());
  return options;
}

SpeedupResult speedup(const SpeedupOptions& given, const std::function<void(const SpeedupRound&)>& on_round) {
  const SpeedupOptions options = with_defaults(given);
  const bool gpus = !cuda_devices().empty();
  std::vector<Measured> all;
  for (const int64_t batch : options.batches)
    for (const int64_t devices : options.devices) all.push_back({batch, devices});
  // Rounds take turns, so that what else the machine does falls on all alike.
  for (int round = 1; round <= options.rounds; ++round)
    for (Measured& one : all) {
      SpeedupRound found = measure(one, options, gpus);
      found.round = round;
      if (on_round) on_round(found);
    }
  std::vector<run::SpeedupRow> rows = rows_of(all, options.apart);
  return {std::move(rows), forecasts_of(all, options), no_forecast(options, gpus),
          static_cast<int64_t>(all[0].together.steps())};
}

}  // namespace lockstep::trials
