// SPDX-License-Identifier: Apache-2.0
#include "cli/speedup.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "cli/trial.h"
#include "lockstep/base/detail/median.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/device.h"
#include "lockstep/report/curves.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"
#include "lockstep/base/detail/file.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kSteps = 12;

// What steps took in several rounds.
class StepTimes {
 public:
  /// The round's own mean.
  double add_round(const TrialResult& result) {
    const auto timed =
        std::span(result.step_seconds).subspan(std::min<size_t>(kWarmUpSteps, result.step_seconds.size() - 1));
    seconds_.resize(timed.size());
    for (size_t step = 0; step < timed.size(); ++step) seconds_[step].push_back(timed[step]);
    return rounds_.emplace_back(std::reduce(timed.begin(), timed.end()) / static_cast<double>(timed.size()));
  }
  bool empty() const { return seconds_.empty(); }
  size_t steps() const { return seconds_.size(); }
  // Batches of clouds differ in size, but all numbers of devices do the same steps: each step counts, in the middle of
  // its rounds. A median over steps could be one batch's here and another's there.
  double mean() const {
    double sum = 0;
    for (const auto& rounds : seconds_) sum += median(rounds);
    return sum / static_cast<double>(seconds_.size());
  }
  // How many times these are the other's, in the middle of the rounds: from one to the next the machine changes by more
  // than within one.
  double over(const StepTimes& other) const {
    std::vector<double> ratios;
    for (size_t round = 0; round < rounds_.size(); ++round) ratios.push_back(rounds_[round] / other.rounds_[round]);
    return median(std::move(ratios));
  }

 private:
  std::vector<std::vector<double>> seconds_;  // [timed step][round]
  std::vector<double> rounds_;                // their means
};

// One line of the table, with what all its rounds have measured.
struct Measured {
  int64_t batch;
  int64_t devices;
  StepTimes together = {};
  StepTimes apart = {};  // of as many trainings as devices; one device is that already
  run::Phases phases = {};
  int phase_rounds = 0;

  const StepTimes& times_apart() const { return apart.empty() ? together : apart; }
  double speedup_apart(const Measured& base) const {
    return base.times_apart().over(times_apart()) * static_cast<double>(devices) / static_cast<double>(base.devices);
  }
};

Trial trial_of(const run::Config& config, const Measured& one, bool gpus) {
  Trial trial{.config = config};
  trial.config.batch = one.batch;
  if (gpus) {
    trial.processes = static_cast<int>(one.devices);
    trial.config.devices = "cuda";
  } else {
    trial.config.devices = text("cpu:", one.devices);
  }
  return trial;
}

run::Config config_of(const SpeedupOptions& options) {
  std::vector<std::string> given;
  run::Config config = options.config.resolve(given);
  const auto is_given = [&](const char* name) { return std::ranges::count(given, name) > 0; };
  if (!is_given("steps")) config.steps = kSteps;
  require(config.steps > kWarmUpSteps, "speedup", "--steps is ", config.steps, ", expected more than ", kWarmUpSteps,
          ", which only warm up");
  if (!is_given("epochs")) config.epochs = 0;
  run::check(config);
  return config;
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

// The same replicas for all numbers of devices, so that all lines do the same work.
int64_t replicas_of(const run::Config& config, const std::vector<int64_t>& devices, int64_t batch) {
  if (config.replicas > 0) return config.replicas;
  const auto most = std::bit_ceil(static_cast<uint64_t>(*std::ranges::max_element(devices)));
  return std::min<int64_t>(static_cast<int64_t>(std::max<uint64_t>(8, most)),
                           static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch))));
}

/// One round of it; what came out, in words.
std::string measure(Measured& one, const run::Config& config, const SpeedupOptions& options, bool gpus) {
  run::Config mine = config;
  mine.replicas = replicas_of(config, options.devices, one.batch);
  Trial trial = trial_of(mine, one, gpus);
  const TrialResult result = run_trial(trial);
  const auto milliseconds = [](double seconds) { return report::fixed(1e3 * seconds, 1) + " ms"; };
  std::string found = milliseconds(one.together.add_round(result)) + " a step";
  if (options.apart && one.devices > 1) {
    trial.apart = true;
    trial.processes = static_cast<int>(one.devices);
    if (!gpus) trial.config.devices = "cpu:1";
    found += ", apart " + milliseconds(one.apart.add_round(run_trial(trial)));
  }
  if (result.phases) {
    one.phases += *result.phases;
    ++one.phase_rounds;
  }
  return found;
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

std::string shown_speedup(double value) {
  return report::fixed(value, 2);
}

// Whether each of so many devices has a core of its own.
report::Cell cores_of(int64_t devices, bool gpus) {
  if (gpus) return {};
  return devices <= cpu_info().cores ? "own" : "shared";
}

report::Table table_of(const std::vector<run::SpeedupRow>& rows, bool gpus) {
  const auto milliseconds = [](double seconds) { return report::fixed(1e3 * seconds, 2); };
  const auto percent = [](double part) { return report::fixed(100 * part, 1); };
  std::vector<report::Column> columns{{"devices"},
                                      {"batch"},
                                      {"batch per device", "", [](double value) { return report::compact(value, 4); }},
                                      {"time per iteration", "ms", milliseconds},
                                      {"speedup", "", shown_speedup},
                                      {"ideal", "", [](double value) { return report::compact(value, 3); }},
                                      {"waiting for data", "%", percent},
                                      {"communication", "%", percent},
                                      {"imbalance", "%", percent},
                                      {"update", "%", percent},
                                      {"cores"}};
  if (rows[0].apart) columns.push_back({"apart", "", shown_speedup});
  report::Table table(std::move(columns));
  for (const auto& row : rows) {
    const auto base = std::ranges::find(rows, row.batch, &run::SpeedupRow::batch);
    std::vector<report::Cell> cells{
        int64_t{row.devices}, row.batch,   static_cast<double>(row.batch) / static_cast<double>(row.devices),
        row.seconds_per_step, row.speedup, static_cast<double>(row.devices) / static_cast<double>(base->devices)};
    if (row.phases) {
      const double whole = row.phases->sum();
      for (const double part : {row.phases->data, row.phases->communication, row.phases->wait, row.phases->update})
        cells.emplace_back(part / whole);
    } else {
      cells.resize(10);
    }
    cells.emplace_back(cores_of(row.devices, gpus));
    if (row.apart) cells.emplace_back(*row.apart);
    table.add(std::move(cells));
  }
  return table;
}

// The mean speedup of each number of devices over all batch sizes.
report::Table means_of(const std::vector<run::SpeedupRow>& rows, const SpeedupOptions& options, bool gpus) {
  report::Table table({{"devices"}, {"mean speedup", "", shown_speedup}, {"ideal", "", shown_speedup}, {"cores"}});
  for (const int64_t devices : options.devices) {
    double sum = 0;
    for (const auto& row : rows)
      if (row.devices == devices) sum += row.speedup;
    table.add({devices, sum / static_cast<double>(options.batches.size()),
               static_cast<double>(devices) / static_cast<double>(options.devices[0]), cores_of(devices, gpus)});
  }
  return table;
}

void print(const std::vector<run::SpeedupRow>& rows, const SpeedupOptions& options, bool gpus) {
  for (const int64_t batch : options.batches) {
    std::vector<run::SpeedupRow> of_batch;
    std::ranges::copy_if(rows, std::back_inserter(of_batch), [&](const auto& row) { return row.batch == batch; });
    std::printf("\n%s", table_of(of_batch, gpus).to_text().c_str());
  }
  if (options.batches.size() > 1)
    std::printf("\nover all batch sizes\n\n%s", means_of(rows, options, gpus).to_text().c_str());
  if (!gpus && *std::ranges::max_element(options.devices) > cpu_info().cores)
    std::printf("\nthis machine has %d cores: more devices than that share them and can't be faster\n",
                cpu_info().cores);
}

}  // namespace

int speedup(const SpeedupOptions& given) {
  SpeedupOptions options = given;
  const run::Config config = config_of(options);
  if (options.batches.empty()) options.batches = {run::usual_batch(data::names_clouds(config.data))};
  const bool gpus = !cuda_devices().empty();
  check(options, gpus);
  check_results(options.json, options.chart);
  std::vector<Measured> all;
  for (const int64_t batch : options.batches)
    for (const int64_t devices : options.devices) all.push_back({batch, devices});
  // Rounds take turns, so that what else the machine does falls on all alike.
  for (int round = 0; round < options.rounds; ++round)
    for (Measured& one : all) {
      const std::string found = measure(one, config, options, gpus);
      if (!config.quiet)
        std::fprintf(stderr, "round %d of %d: batch %ld on %ld: %s\n", round + 1, options.rounds,
                     static_cast<long>(one.batch), static_cast<long>(one.devices), found.c_str());
    }
  const auto rows = rows_of(all, options.apart);
  std::printf("%s on %s, mean of %zu steps; times and speedups are medians of %d interleaved %s\n",
              config.model.c_str(), config.data.c_str(), all[0].together.steps(), options.rounds,
              options.rounds == 1 ? "round" : "rounds");
  print(rows, options, gpus);
  if (!options.json.empty()) write_file(options.json, table_of(rows, gpus).to_json() + "\n");
  if (!options.chart.empty()) report::write_figure(options.chart, report::speedup_figure(rows));
  return 0;
}

void setup_speedup(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<SpeedupOptions>();
  CLI::App* command = app.add_subcommand("speedup", "How a step gets faster with devices: lockstep speedup MODEL");
  add_config_options(*command, options->config,
                     {"resume", "out", "devices", "blocks", "batch", "save-every", "check-data", "scale-batch"});
  options->devices = {1, 2};
  command->add_option("--batch", options->batches, "Global batch sizes; default: 256, or 8 clouds")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Measure");
  command->add_option("--devices", options->devices, "Numbers of devices; default 1,2")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Measure");
  command->add_option("--rounds", options->rounds, "Rounds over all of them; default 3")->group("Measure");
  command
      ->add_flag(
          "--apart", options->apart,
          "Also as many trainings as devices at once, a device each and nothing in common: what the machine gives")
      ->group("Measure");
  command->add_option("--json", options->json, "The table as JSON into this file")->group("Measure");
  command->add_option("--chart", options->chart, "STEM.svg and STEM.png, with the ideal line")->group("Measure");
  command->callback([options, &chosen] { chosen = [options] { return speedup(*options); }; });
}

}  // namespace lockstep::cli
