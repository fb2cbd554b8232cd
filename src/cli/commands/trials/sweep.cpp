// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/sweep.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/config_options.h"
#include "cli/result_files.h"
#include "lockstep/base/error.h"
#include "lockstep/report/format.h"

namespace lockstep::cli {
namespace {

struct SweepCommand {
  ConfigOptions config;
  trials::SweepOptions options;
  ResultFiles files;
};

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

void add(report::Table& table, const trials::SweepRow& row) {
  if (!row.result) return table.add({row.devices, {}, row.lr, std::string("failed"), {}, {}, {}, {}});
  const trials::TrialResult& result = *row.result;
  table.add({row.devices, result.batch, row.lr, result.train_loss, result.train_accuracy, result.test_loss,
             result.test_accuracy, result.seconds});
}

int sweep(const SweepCommand& command) {
  trials::SweepOptions options = command.options;
  std::vector<std::string> given;
  options.config = command.config.resolve(given);
  options = trials::with_defaults(std::move(options));
  command.files.check();
  const run::Config& config = options.config;
  auto table = empty_table();
  trials::sweep(options, [&](const trials::SweepRow& row) {
    add(table, row);
    if (config.quiet) return;
    const std::string found = row.result ? text("test accuracy ", report::fixed(row.result->test_accuracy, 4), ", in ",
                                                report::duration(row.result->seconds))
                                         : "failed";
    std::fprintf(stderr, "lr %g on %ld: %s\n", row.lr, static_cast<long>(row.devices), found.c_str());
  });
  std::printf("%s on %s, %ld epochs%s\n\n%s", config.model.c_str(), config.data.c_str(),
              static_cast<long>(config.epochs), options.fixed_batch ? "" : "; the batch grows with the devices",
              table.to_text().c_str());
  command.files.write(table, table.to_figure({.title = "test accuracy by learning rate",
                                              .x = "lr",
                                              .y = "test accuracy",
                                              .series = "devices",
                                              .log_x = true}));
  return 0;
}

}  // namespace

void setup_sweep(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<SweepCommand>();
  CLI::App* command =
      app.add_subcommand("sweep", "Which learning rate suits which number of devices: lockstep sweep MODEL");
  add_config_options(
      *command, options->config,
      {"resume", "out", "devices", "blocks", "lr", "save-every", "check-data", "scale-batch", "scale-lr"});
  command->add_option("--lr", options->options.rates, "Learning rates; default 0.05,0.1,0.2,0.4")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Compare");
  command->add_option("--devices", options->options.devices, "Numbers of devices; default 1,2")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Compare");
  command->add_flag("--fixed-batch", options->options.fixed_batch, "The same batch for all, instead of one that grows")
      ->group("Compare");
  options->files.add_options(*command, "Compare", "STEM.svg and STEM.png");
  command->callback([options, &chosen] { chosen = [options] { return sweep(*options); }; });
}

}  // namespace lockstep::cli
