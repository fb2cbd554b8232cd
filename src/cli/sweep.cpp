// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/trial.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/device.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"
#include "lockstep/base/detail/file.h"

namespace lockstep::cli {
namespace {

Trial trial_of(const run::Config& config, double lr, int64_t devices, const SweepOptions& options) {
  Trial trial{.config = config, .evaluated = true};
  trial.config.lr = lr;
  if (!options.fixed_batch) trial.config.batch = config.batch * devices;
  if (cuda_devices().empty()) {
    trial.config.devices = text("cpu:", devices);
  } else {
    trial.processes = static_cast<int>(devices);
    trial.config.devices = "cuda";
  }
  return trial;
}

void check(const SweepOptions& options) {
  require(!options.rates.empty() && !options.devices.empty(), "sweep",
          "--lr or --devices is empty, expected numbers, as in --lr 0.05,0.1 --devices 1,2");
  for (const double rate : options.rates) require(rate > 0, "sweep", "--lr has ", rate, ", expected more than 0");
  for (const int64_t devices : options.devices)
    require(devices >= 1, "sweep", "--devices has ", devices, ", expected 1 or more");
}

report::Table empty_table() {
  const auto accuracy = [](double value) { return report::fixed(value, 4); };
  return report::Table({{"devices"},
                        {"batch"},
                        {"lr", "", [](double value) { return report::compact(value, 4); }},
                        {"train loss", "", accuracy},
                        {"train accuracy", "", accuracy},
                        {"test loss", "", accuracy},
                        {"test accuracy", "", accuracy},
                        {"time", "s", [](double value) { return report::fixed(value, 1); }}});
}

}  // namespace

int sweep(const SweepOptions& options) {
  check(options);
  std::vector<std::string> given;
  run::Config config = options.config.resolve(given);
  if (config.batch == 0) config.batch = run::usual_batch(data::names_clouds(config.data));
  config.evaluate_every = 0;
  run::check(config);
  check_results(options.json, options.chart);
  auto table = empty_table();
  for (const int64_t devices : options.devices)
    for (const double lr : options.rates) {
      std::string found = "failed";
      try {
        const TrialResult result = run_trial(trial_of(config, lr, devices, options));
        found =
            text("test accuracy ", report::fixed(result.test_accuracy, 4), ", in ", report::duration(result.seconds));
        table.add({devices, result.batch, lr, result.train_loss, result.train_accuracy, result.test_loss,
                   result.test_accuracy, result.seconds});
      } catch (const TrialFailed& failed) {  // its loss may have become infinite: that is an answer too
        if (failed.exit_code() != 1) throw;
        table.add({devices, {}, lr, std::string("failed"), {}, {}, {}, {}});
      }
      if (!config.quiet) std::fprintf(stderr, "lr %g on %ld: %s\n", lr, static_cast<long>(devices), found.c_str());
    }
  std::printf("%s on %s, %ld epochs%s\n\n%s", config.model.c_str(), config.data.c_str(),
              static_cast<long>(config.epochs), options.fixed_batch ? "" : "; the batch grows with the devices",
              table.to_text().c_str());
  if (!options.json.empty()) write_file(options.json, table.to_json() + "\n");
  if (!options.chart.empty())
    report::write_figure(options.chart, table.to_figure({.title = "test accuracy by learning rate",
                                                         .x = "lr",
                                                         .y = "test accuracy",
                                                         .series = "devices",
                                                         .log_x = true}));
  return 0;
}

void setup_sweep(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<SweepOptions>();
  CLI::App* command =
      app.add_subcommand("sweep", "Which learning rate suits which number of devices: lockstep sweep MODEL");
  add_config_options(
      *command, options->config,
      {"resume", "out", "devices", "blocks", "lr", "save-every", "check-data", "scale-batch", "scale-lr"});
  options->rates = {0.05, 0.1, 0.2, 0.4};
  options->devices = {1, 2};
  command->add_option("--lr", options->rates, "Learning rates; default 0.05,0.1,0.2,0.4")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Compare");
  command->add_option("--devices", options->devices, "Numbers of devices; default 1,2")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Compare");
  command->add_flag("--fixed-batch", options->fixed_batch, "The same batch for all, instead of one that grows")
      ->group("Compare");
  command->add_option("--json", options->json, "The table as JSON into this file")->group("Compare");
  command->add_option("--chart", options->chart, "STEM.svg and STEM.png")->group("Compare");
  command->callback([options, &chosen] { chosen = [options] { return sweep(*options); }; });
}

}  // namespace lockstep::cli
