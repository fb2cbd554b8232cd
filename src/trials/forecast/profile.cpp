// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/dataset.h"
#include "lockstep/report/format.h"
#include "trials/forecast/measurements.h"
#include "trials/forecast/rounds.h"

namespace lockstep::trials {
namespace {

// A part of a step that is shorter than this says nothing about how much it is slowed.
constexpr double kLeastPart = 0.02;

// A round where nobody says how many steps it has.
constexpr double kRoundSeconds = 1.5;
constexpr int64_t kFewestSteps = 12, kMostSteps = 300;

void scale(double& all, std::vector<parallel::StageCost>& stages, double parallel::StageCost::*part,
           double parallel::StageCost::*sliced, double wanted) {
  all = 0;
  for (const auto& stage : stages) all += stage.*part;
  const double factor = all > 0 ? wanted / all : 0;
  for (auto& stage : stages) {
    stage.*part *= factor;
    stage.*sliced *= factor;
  }
  all = factor;
}

// From one thread on, evenly, to what was measured with a thread a core.
std::vector<double> even_rise(double first, double last, int64_t cores) {
  std::vector<double> out{first};
  for (int64_t n = 2; n <= cores; ++n)
    out.push_back(first + (last - first) * static_cast<double>(n - 1) / static_cast<double>(cores - 1));
  return out;
}

/// `alone_mib`: what one replica needed that had no update rule. A rule keeps tensors as large as the gradients.
void settle_memory(Profile& profile, double alone_mib, int64_t states) {
  double gradients = 0;
  for (const auto& one : profile.cost.gradients)
    gradients += static_cast<double>(one.numel * one.element_bytes) / kMebibyte;
  profile.replica_mib = gradients;
  if (profile.replicas == 1) return;
  const double others = profile.peak_mib - alone_mib - static_cast<double>(states) * gradients;
  profile.replica_mib = std::max(gradients, others / static_cast<double>(profile.replicas - 1));
}

struct Slowed {
  double passes, memory;
};

/// How much longer passes and updates took than alone.
Slowed slowed(const run::Phases& crowded, const run::Phases& alone, double most) {
  const double passes = std::clamp((crowded.forward + crowded.backward) / (alone.forward + alone.backward), 0.9, most);
  const bool says_something = alone.update > kLeastPart * alone.sum();
  return {passes, says_something ? std::clamp(crowded.update / alone.update, 0.9, most) : passes};
}

/// What a step on a thread a core took longer than slowed passes and updates explain: threads wake each other at each
/// turn. Of clouds it is unknown, as shares that differ make threads wait, too.
void settle_turns(Profile& profile, double seconds) {
  if (profile.clouds) return;
  const int64_t threads = std::min(profile.cores, profile.replicas);
  const double known =
      parallel::forecast_step(profile.cost, {.blocks = Placement({profile.replicas}), .devices = threads},
                              profile.slowdown)
          .seconds;
  const int64_t most = (profile.replicas + threads - 1) / threads;  // of a thread
  // Turns are slowed as passes are.
  const double turns = static_cast<double>(most) * profile.slowdown.thread_passes[static_cast<size_t>(threads - 1)];
  profile.slowdown.thread_turn = even_rise(0, std::max(0.0, seconds - known) / turns, profile.cores);
}

/// Least squares of steps' times over what their shares cost: the part of the mean time that does not grow with them.
double fixed_part_of(const std::vector<double>& seconds, const std::vector<double>& costs) {
  const auto count = static_cast<double>(seconds.size());
  const double x = std::reduce(costs.begin(), costs.end()) / count;
  const double y = std::reduce(seconds.begin(), seconds.end()) / count;
  double xx = 0, xy = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    xx += (costs[i] - x) * (costs[i] - x);
    xy += (costs[i] - x) * (seconds[i] - y);
  }
  if (xx <= 0) return 0;
  return std::clamp(1 - xy / xx * x / y, 0.0, 0.5);
}

void settle_clouds(Profile& profile, const run::Config& config, const std::vector<double>& step_seconds) {
  profile.clouds = data::names_clouds(config.data);
  if (!profile.clouds) return;
  const auto shares =
      find_shares(config, {{profile.batch, profile.replicas}}, static_cast<int64_t>(step_seconds.size()));
  std::vector<double> costs, seconds;
  for (size_t step = warm_up_steps; step < std::min(step_seconds.size(), shares[0].size()); ++step) {
    costs.push_back(std::reduce(shares[0][step].begin(), shares[0][step].end(), 0.0));
    seconds.push_back(step_seconds[step]);
  }
  if (seconds.size() > 2) profile.fixed_part = fixed_part_of(seconds, costs);
}

}  // namespace

double deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const auto count = static_cast<double>(values.size());
  const double mean = std::reduce(values.begin(), values.end()) / count;
  double squares = 0;
  for (const double one : values) squares += (one - mean) * (one - mean);
  return std::sqrt(squares / (count - 1)) / mean;
}

void calibrate(Profile& profile, const MeasuredPhases& measured, int64_t states) {
  const run::Phases& one = measured.one;
  parallel::StepCost& cost = profile.cost;
  const auto replicas = static_cast<double>(profile.replicas);
  double factor = 1;
  scale(factor, cost.stages, &parallel::StageCost::forward, &parallel::StageCost::sliced_forward,
        one.forward / replicas);
  scale(factor, cost.stages, &parallel::StageCost::backward, &parallel::StageCost::sliced_backward,
        one.backward / replicas);
  for (auto& stage : cost.stages) stage.late_backward *= factor;
  for (auto& gradient : cost.gradients) gradient.at *= factor;
  cost.data = one.data / replicas;
  cost.turn = (one.wait + one.communication) / replicas;
  // Rows of memory that a step reads or writes: each replica's gradients; weights twice, and the rule's state twice.
  const auto rule_rows = static_cast<double>(2 + 2 * states);
  const double sum_rows = profile.replicas > 1 ? replicas : 0;
  cost.sum_row = one.update / (rule_rows + std::max(1.0, sum_rows));
  cost.update = one.update - cost.sum_row * sum_rows;
  if (profile.cores < 2) return;
  const auto cores = static_cast<double>(profile.cores);
  if (measured.apart) {
    const auto [passes, memory] = slowed(*measured.apart, one, 2 * cores);
    profile.slowdown.passes = even_rise(1, passes, profile.cores);
    profile.slowdown.memory = even_rise(1, memory, profile.cores);
  }
  if (!measured.threads) return;
  run::Phases work = *measured.threads;  // of all threads: each has done a part of it
  const auto [passes, memory] = slowed(work /= 1 / std::min(cores, replicas), one, 2 * cores);
  profile.slowdown.thread_passes = even_rise(1, passes, profile.cores);
  profile.slowdown.thread_memory = even_rise(1, memory, profile.cores);
  settle_turns(profile, measured.threads->sum());
}

std::string Measurements::add_crowded(const run::Config& config) {
  const int cores = cpu_info().cores;
  const auto milliseconds = [](double seconds) { return report::fixed(1e3 * seconds, 1); };
  std::string found;
  if (!comm::backends().empty())
    found = text(", ", milliseconds(apart.add(run_trial({.config = config, .processes = cores, .apart = true}))),
                 " ms in ", cores, " processes at once");
  Trial trial{.config = config};
  trial.config.devices = text("cpu:", cores);
  return found + text(", ", milliseconds(threads.add(run_trial(trial))), " ms on ", cores, " threads");
}

Profile make_profile(const run::Config& config, const Measurements& measured) {
  const Rounds& one = measured.one;
  const auto phases_of = [](const Rounds& rounds) {
    return rounds.phases.empty() ? std::nullopt : std::optional(rounds.middle());
  };
  const auto [passes, alone_mib] = measure_passes(config);
  Profile profile{.processor = cpu_info().model,
                  .cores = cpu_info().cores,
                  .model = config.model,
                  .data = config.data,
                  .batch = config.batch,
                  .replicas = config.replicas,
                  .cost = passes.cost,
                  .seconds = one.times.mean(),
                  .spread = deviation(one.seconds),
                  .thread_spread = deviation(measured.threads.seconds),
                  .jitter = data::names_clouds(config.data) ? 0 : median(one.jitters),
                  .rounds = static_cast<int>(one.seconds.size()),
                  .steps = config.steps,
                  .peak_mib = median(one.peaks),
                  .examples = passes.examples,
                  .buffers_bytes = passes.buffers_bytes,
                  .has_stages = passes.has_stages};
  settle_memory(profile, alone_mib, passes.states);
  settle_clouds(profile, config, one.last_steps);
  calibrate(profile, {.one = one.middle(), .apart = phases_of(measured.apart), .threads = phases_of(measured.threads)},
            passes.states);
  return profile;
}

Profiler::Profiler(ProfileOptions options) : options_(std::move(options)), measured_(std::make_unique<Measurements>()) {
  require(options_.rounds >= 1, "forecast", "--rounds is ", options_.rounds, ", expected 1 or more");
  require(options_.steps == 0 || options_.steps > warm_up_steps + 2, "forecast", "--profile-steps is ", options_.steps,
          ", expected ", warm_up_steps + 3, " or more, of which ", warm_up_steps, " only warm up");
  run::Config& config = options_.config;
  config.devices = "cpu:1";
  config.split = "data";
  config.blocks.clear();
  config.epochs = 0;
  config.steps = options_.steps;
}

Profiler::~Profiler() = default;

std::string Profiler::measure_round() {
  run::Config& config = options_.config;
  if (config.steps == 0) {
    config.steps = kFewestSteps;
    StepTimes times;
    const double second = 1 / times.add_round(run_trial({.config = config}));
    config.steps = std::clamp(static_cast<int64_t>(kRoundSeconds * second) + warm_up_steps, kFewestSteps, kMostSteps);
  }
  const std::string found =
      text(report::fixed(1e3 * measured_->one.add(run_trial({.config = config})), 1), " ms a step on one device");
  return options_.slows && cpu_info().cores > 1 ? found + measured_->add_crowded(config) : found;
}

Profile Profiler::profile() const {
  require(!measured_->one.seconds.empty(), "forecast", "no round was measured, expected measure_round() before");
  Profile profile = make_profile(options_.config, *measured_);
  if (options_.link) profile.loopback = measure_link();
  return profile;
}

Profile measure_profile(const ProfileOptions& options, const std::function<void(const std::string&)>& on_round) {
  const auto say = [&](const std::string& line) {
    if (on_round) on_round(line);
  };
  Profiler profiler(options);
  for (int round = 1; round <= options.rounds; ++round)
    say(text("round ", round, " of ", options.rounds, ": ", profiler.measure_round()));
  Profile profile = profiler.profile();
  if (profile.loopback)
    say(text("between processes here: ", report::fixed(8e-9 * profile.loopback->bytes_per_second, 1), " Gbit/s, ",
             report::duration(profile.loopback->latency + profile.loopback->message)));
  return profile;
}

}  // namespace lockstep::trials
