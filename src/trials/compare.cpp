// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/compare.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/dataset.h"
#include "lockstep/parallel/split.h"
#include "lockstep/trials/forecast.h"
#include "trials/given.h"
#include "trials/network.h"
#include "trials/step_times.h"

namespace lockstep::trials {
namespace {

constexpr int64_t kStepsOfEach = 12;

// A row, with what all its rounds have measured.
struct Contender {
  CompareRow row;
  StepTimes times = {};
  std::vector<double> peaks = {};                                      // [round]
  std::vector<double> bubbles = {}, waiting = {}, communication = {};  // [traced step of a round]
};

TrialResult on_threads(Trial& trial, const CompareRow& row) {
  trial.config.devices = text("cpu:", row.devices);
  return run_trial(trial);
}

TrialResult over_network(Trial& trial, const CompareRow& row) {
  const Network network(row.rate, static_cast<int>(row.devices));
  trial.config.devices = "cpu:1";
  trial.processes = static_cast<int>(row.devices);
  trial.launcher = network.launcher();
  try {
    return run_trial(trial);
  } catch (const TrialFailed& failed) {
    if (failed.exit_code() == NetworkForbidden::code) throw NetworkForbidden();
    throw;
  }
}

void measure(Contender& one, const CompareOptions& options) {
  Trial trial{.config = options.config, .traced = true};
  trial.config.split = one.row.split;
  const TrialResult result = one.row.rate.empty() ? on_threads(trial, one.row) : over_network(trial, one.row);
  one.row.seconds_per_step = one.times.add_round(result);
  require(one.row.hash.empty() || one.row.hash == result.hash, "compare", one.row.split,
          " ended with other weights in another round, expected the same");
  one.row.hash = result.hash;
  one.row.why = result.why_split;
  one.row.bytes_sent = result.bytes_sent;
  one.peaks.push_back(result.peak_mib);
  for (const TracedStep& step : result.traced) {
    one.bubbles.push_back(step.bubble());
    one.waiting.push_back(std::max(0.0, step.idle() - step.bubble()) + step.share_of("data"));
    one.communication.push_back(step.share_of("exchange"));
  }
  if (!result.traced.empty()) one.row.step = result.traced.back();
}

CompareRow row_of(Contender& one, const Contender& base) {
  CompareRow row = std::move(one.row);
  row.seconds_per_step = one.times.mean();
  row.speedup = base.times.over(one.times);
  row.peak_mib = median(one.peaks);
  if (one.bubbles.empty()) return row;
  row.bubble = median(one.bubbles);
  row.waiting = median(one.waiting);
  row.communication = median(one.communication);
  return row;
}

}  // namespace

CompareOptions with_defaults(CompareOptions options) {
  run::Config& config = options.config;
  if (!is_set(config, options.given, "steps")) config.steps = kStepsOfEach;
  require(config.steps > warm_up_steps, "compare", "--steps is ", config.steps, ", expected more than ", warm_up_steps,
          ", which only warm up");
  if (!is_set(config, options.given, "epochs")) config.epochs = 0;
  run::check(config);
  require(options.devices >= 1, "compare", "--devices is ", options.devices, ", expected 1 or more");
  require(options.rounds >= 1, "compare", "--rounds is ", options.rounds, ", expected 1 or more");
  require(!options.splits.empty(), "compare", "--splits is empty, expected splits, as in \"data;p2\"");
  for (const std::string& split : options.splits)
    if (!split.starts_with("auto")) parallel::parse_split(split);
  for (const std::string& rate : options.rates)
    require(parse_rate(rate).value_or(0) > 0, "compare", "--rate is '", rate, "', expected rates, as in 100mbit,1gbit");
  require(options.rates.empty() || (options.devices > 1 && !comm::backends().empty()), "compare", "--rate with ",
          options.devices, " devices and ", comm::backends().size(), " backends that join processes, expected two or ",
          "more devices, and a build with one");
  if (config.batch == 0) config.batch = run::usual_batch(data::names_clouds(config.data));
  config.replicas = same_replicas(config, options.devices, config.batch);
  return options;
}

CompareResult compare(const CompareOptions& given, const std::function<void(int round, const CompareRow&)>& on_round) {
  const CompareOptions options = with_defaults(given);
  std::vector<Contender> all{{.row = {.split = "data", .devices = 1}}};
  for (const std::string& rate : options.rates.empty() ? std::vector<std::string>{""} : options.rates)
    for (const std::string& split : options.splits)
      all.push_back({.row = {.split = split, .rate = rate, .devices = options.devices}});
  // Rounds take turns, so that what else the machine does falls on all alike.
  for (int round = 1; round <= options.rounds; ++round)
    for (Contender& one : all) {
      measure(one, options);
      if (on_round) on_round(round, one.row);
    }
  CompareResult result{.steps = static_cast<int64_t>(all[0].times.steps())};
  for (Contender& one : all) result.rows.push_back(row_of(one, all[0]));
  result.one_device = std::move(result.rows.front());
  result.rows.erase(result.rows.begin());
  for (const CompareRow& row : result.rows) result.identical &= row.hash == result.one_device.hash;
  return result;
}

}  // namespace lockstep::trials
