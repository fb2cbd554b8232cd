// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/compare.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/config_options.h"
#include "cli/result_files.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"

namespace lockstep::cli {
namespace {

struct CompareCommand {
  ConfigOptions config;
  trials::CompareOptions options;
  ResultFiles files;
};

std::string name_of(const trials::CompareRow& row) {
  return row.rate.empty() ? row.split : text(row.split, " at ", row.rate);
}

// A terminal's table shows the beginning of a hash.
report::Table table_of(const std::vector<trials::CompareRow>& rows, bool has_rates, size_t digits) {
  const auto percent = [](double part) { return report::fixed(100 * part, 1); };
  const auto two_digits = [](double value) { return report::fixed(value, 2); };
  std::vector<report::Column> columns{{"split"},
                                      {"ms", "", two_digits},
                                      {"speedup", "", two_digits},
                                      {"bytes_sent"},
                                      {"bubble", "%", percent},
                                      {"waiting", "%", percent},
                                      {"communication", "%", percent},
                                      {"peak_mib", "", [](double value) { return report::fixed(value, 0); }},
                                      {"hash"}};
  if (has_rates) columns.insert(columns.begin(), {"rate"});
  report::Table table(std::move(columns));
  for (const auto& row : rows) {
    std::vector<report::Cell> cells{row.split,
                                    1e3 * row.seconds_per_step,
                                    row.speedup,
                                    row.bytes_sent,
                                    row.bubble,
                                    row.waiting,
                                    row.communication,
                                    row.peak_mib,
                                    row.hash.substr(0, digits)};
    if (has_rates) cells.insert(cells.begin(), row.rate);
    table.add(std::move(cells));
  }
  return table;
}

int colour_of(const std::string& phase) {
  return phase == "forward" ? 0 : phase == "backward" ? 1 : 2;
}

// One step of each way, a row a device.
report::Figure figure_of(const trials::CompareResult& result) {
  report::Figure figure{
      .title = "A step",
      .x = {.label = "milliseconds", .low = 0},
      .series = {
          {.name = "forward", .color = 0}, {.name = "backward", .color = 1}, {.name = "sums and update", .color = 2}}};
  const auto add = [&](const trials::CompareRow& row, const std::string& name) {
    for (const auto& device : row.step.devices) {
      const auto lane = static_cast<double>(figure.lanes.size());
      figure.lanes.push_back(name.empty() ? text(name_of(row), ", ", device.device) : name);
      for (const auto& span : device.spans) {
        if (span.phase == "data") continue;
        report::Series& series = figure.series[colour_of(span.phase)];
        for (const double seconds : {span.begin, span.end}) {
          series.x.push_back(1e3 * seconds);
          series.y.push_back(lane);
        }
      }
    }
  };
  add(result.one_device, "one device");
  for (const auto& row : result.rows) add(row, "");
  return figure;
}

report::FigureSize size_of(const report::Figure& figure) {
  return {720, std::min(2048, 110 + 26 * static_cast<int>(figure.lanes.size()))};
}

int compare(const CompareCommand& command) {
  trials::CompareOptions options = command.options;
  options.config = command.config.resolve(options.given);
  options = trials::with_defaults(std::move(options));
  command.files.check();
  const auto result = trials::compare(options, [&](int round, const trials::CompareRow& row) {
    if (!options.config.quiet)
      std::fprintf(stderr, "round %d of %d: %s on %ld: %s ms a step\n", round, options.rounds, name_of(row).c_str(),
                   static_cast<long>(row.devices), report::fixed(1e3 * row.seconds_per_step, 1).c_str());
  });
  const run::Config& config = options.config;
  const bool has_rates = !options.rates.empty();
  std::printf("%s on %s: %ld replicas, batch %ld, %ld %s; medians of %d interleaved %s of %ld steps\n",
              config.model.c_str(), config.data.c_str(), static_cast<long>(config.replicas),
              static_cast<long>(config.batch), static_cast<long>(options.devices),
              has_rates ? "processes, a host each" : "threads", options.rounds,
              options.rounds == 1 ? "round" : "rounds", static_cast<long>(result.steps));
  std::printf("one device: %s ms a step, %s MiB, hash %s\n\n%s",
              report::fixed(1e3 * result.one_device.seconds_per_step, 2).c_str(),
              report::fixed(result.one_device.peak_mib, 0).c_str(), result.one_device.hash.substr(0, 16).c_str(),
              table_of(result.rows, has_rates, 16).to_text().c_str());
  for (const auto& row : result.rows)
    if (!row.why.empty()) std::printf("\n%s\n", row.why.c_str());
  if (options.devices > cpu_info().cores)
    std::printf("\nthis machine has %d cores: more devices than that share them and can't be faster\n",
                cpu_info().cores);
  std::printf("%s\n", result.identical ? "identical" : "not identical");
  const report::Figure figure = figure_of(result);
  command.files.write(table_of(result.rows, has_rates, std::string::npos), figure, size_of(figure));
  return result.identical ? 0 : 1;
}

}  // namespace

void setup_compare(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<CompareCommand>();
  CLI::App* command =
      app.add_subcommand("compare", "Ways to divide a training over devices, side by side: lockstep compare MODEL");
  add_config_options(
      *command, options->config,
      {"resume", "out", "devices", "blocks", "split", "audit", "save-every", "check-data", "scale-batch"});
  command
      ->add_option("--devices", options->options.devices, "Threads of one process, or processes with --rate; default 2")
      ->group("Measure");
  command
      ->add_option("--splits", options->options.splits,
                   "What they divide, as --split of train says it; default \"data;p2\"")
      ->delimiter(';')
      ->allow_extra_args(false)
      ->group("Measure");
  command
      ->add_option("--rate", options->options.rates,
                   "Compare them on processes instead, hosts of their own that networks of these rates join: "
                   "100mbit,1gbit (namespaces of this machine)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Measure");
  command->add_option("--rounds", options->options.rounds, "Rounds over all of them; default 3")->group("Measure");
  options->files.add_options(*command, "Measure", "STEM.svg and STEM.png: a step of each, a row a device");
  command->callback([options, &chosen] { chosen = [options] { return compare(*options); }; });
}

}  // namespace lockstep::cli
