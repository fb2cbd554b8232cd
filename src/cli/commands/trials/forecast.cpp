// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/forecast.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/commands/trials/forecast_output.h"
#include "cli/config_options.h"
#include "cli/result_files.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

struct ForecastCommand {
  ConfigOptions config;
  trials::ForecastOptions options;
  ResultFiles files;
  std::string profile;  // files
  std::string save;
  bool checks = false;
};

trials::Profile profile_of(const ForecastCommand& command, const trials::ForecastOptions& options,
                           const std::function<void(const std::string&)>& say) {
  if (!command.profile.empty()) return trials::read_profile(command.profile);
  const trials::ProfileOptions measured = trials::profile_options(options);
  trials::Profile profile = trials::measure_profile(measured, say);
  trials::remember_profile(measured.config, profile);
  if (!command.save.empty()) trials::write_profile(profile, command.save);
  return profile;
}

void print_heading(const trials::ForecastOptions& options) {
  const run::Config& config = options.config;
  std::printf(
      "%s on %s: %ld replicas, batch %ld%s, link %s; steps with an interval that four of five measurements "
      "should hit\n\n",
      config.model.c_str(), config.data.c_str(), static_cast<long>(config.replicas), static_cast<long>(config.batch),
      config.scale_batch ? " for each device" : "", options.link.c_str());
}

int forecast(const ForecastCommand& command) {
  trials::ForecastOptions options = command.options;
  options.config = command.config.resolve(options.given);
  options = trials::with_defaults(std::move(options));
  require(command.profile.empty() || command.save.empty(), "forecast",
          "--profile reads what --save writes, expected one of them");
  command.files.check();
  if (!command.save.empty()) check_writable(command.save);
  const auto say = [&](const std::string& line) {
    if (!options.config.quiet) std::fprintf(stderr, "%s\n", line.c_str());
  };
  auto result = trials::forecast(options, profile_of(command, options, say));
  print_heading(options);
  std::printf("%s\n%s", forecast_table(result).to_text().c_str(), notes_of(result).c_str());
  std::fflush(stdout);
  if (command.checks) {
    trials::check(result, options, say);
    std::printf("\n%s", checked(result).c_str());
  }
  command.files.write(forecast_rows(result), forecast_figure(result));
  return 0;
}

}  // namespace

void setup_forecast(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ForecastCommand>();
  CLI::App* command = app.add_subcommand(
      "forecast", "What a step will take on other devices, before anybody pays for them: lockstep forecast MODEL");
  add_config_options(*command, options->config,
                     {"resume", "out", "devices", "blocks", "split", "audit", "save-every", "check-data"});
  constexpr const char* group = "Forecast";
  const auto list = [&](const char* name, auto& into, char delimiter, const char* help) {
    command->add_option(name, into, help)->delimiter(delimiter)->allow_extra_args(false)->group(group);
  };
  list("--devices", options->options.devices, ',', "Numbers of devices; default 1,2,4,8");
  list("--splits", options->options.splits, ';',
       "What the devices of a host divide, as --split of train says it; default data");
  command
      ->add_option("--hosts", options->options.hosts,
                   "Hosts and the devices of each, as 8x128; default: hosts like this machine, a device a core")
      ->group(group);
  command
      ->add_option("--link", options->options.link,
                   "Between hosts: rate and latency, as 25gbit:5us; measure: hosts are processes of this machine")
      ->group(group);
  command->add_option("--rounds", options->options.rounds, "Rounds of measuring; default 3")->group(group);
  command
      ->add_option(
          "--profile-steps", options->options.profile_steps,
          "Steps of each round; default: as many as fit into 1.5 seconds, 12 to 300. The first three only warm up")
      ->group(group);
  command->add_option("--save", options->save, "What was measured, into this file")->group(group);
  command->add_option("--profile", options->profile, "Measure nothing: take what --save has written")->group(group);
  command->add_flag("--check", options->checks, "Run the placements that this machine can, and compare")->group(group);
  options->files.add_options(*command, group, "STEM.svg and STEM.png: speedup over devices, with its interval");
  command->callback([options, &chosen] { chosen = [options] { return forecast(*options); }; });
}

}  // namespace lockstep::cli
