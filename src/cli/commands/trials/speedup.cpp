// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/speedup.h"

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
#include "lockstep/numerics/device.h"
#include "lockstep/report/curves.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"

namespace lockstep::cli {
namespace {

struct SpeedupCommand {
  ConfigOptions config;
  trials::SpeedupOptions options;
  ResultFiles files;
};

std::string shown_speedup(double value) {
  return report::fixed(value, 2);
}

// Whether each of so many devices has a core of its own.
report::Cell cores_of(int64_t devices, bool gpus) {
  if (gpus) return {};
  return devices <= cpu_info().cores ? "own" : "shared";
}

// A row and what a forecast said of it.
struct SpeedupLine {
  run::SpeedupRow row;
  std::optional<double> forecast;
};

report::Table table_of(const std::vector<SpeedupLine>& lines, bool gpus) {
  const auto milliseconds = [](double seconds) { return report::fixed(1e3 * seconds, 2); };
  const auto percent = [](double part) { return report::fixed(100 * part, 1); };
  std::vector<report::Column> columns{{"devices"},
                                      {"batch"},
                                      {"batch per device", "", [](double value) { return report::compact(value, 4); }},
                                      {"time per iteration", "ms", milliseconds},
                                      {"forecast", "ms", milliseconds},
                                      {"speedup", "", shown_speedup},
                                      {"ideal", "", [](double value) { return report::compact(value, 3); }},
                                      {"waiting for data", "%", percent},
                                      {"communication", "%", percent},
                                      {"imbalance", "%", percent},
                                      {"update", "%", percent},
                                      {"cores"}};
  if (lines[0].row.apart) columns.push_back({"apart", "", shown_speedup});
  report::Table table(std::move(columns));
  for (const auto& [row, forecast] : lines) {
    const auto base = std::ranges::find(lines, row.batch, [](const SpeedupLine& line) { return line.row.batch; });
    std::vector<report::Cell> cells{int64_t{row.devices},
                                    row.batch,
                                    static_cast<double>(row.batch) / static_cast<double>(row.devices),
                                    row.seconds_per_step,
                                    forecast ? report::Cell(*forecast) : report::Cell(),
                                    row.speedup,
                                    static_cast<double>(row.devices) / static_cast<double>(base->row.devices)};
    if (row.phases) {
      const double whole = row.phases->sum();
      for (const double part : {row.phases->data, row.phases->communication, row.phases->wait, row.phases->update})
        cells.emplace_back(part / whole);
    } else {
      cells.resize(11);
    }
    cells.emplace_back(cores_of(row.devices, gpus));
    if (row.apart) cells.emplace_back(*row.apart);
    table.add(std::move(cells));
  }
  return table;
}

// The mean speedup of each number of devices over all batch sizes.
report::Table means_of(const std::vector<run::SpeedupRow>& rows, const trials::SpeedupOptions& options, bool gpus) {
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

void print(const std::vector<SpeedupLine>& lines, const std::vector<run::SpeedupRow>& rows,
           const trials::SpeedupOptions& options, bool gpus) {
  for (const int64_t batch : options.batches) {
    std::vector<SpeedupLine> of_batch;
    std::ranges::copy_if(lines, std::back_inserter(of_batch),
                         [&](const auto& line) { return line.row.batch == batch; });
    std::printf("\n%s", table_of(of_batch, gpus).to_text().c_str());
  }
  if (options.batches.size() > 1)
    std::printf("\nover all batch sizes\n\n%s", means_of(rows, options, gpus).to_text().c_str());
  if (!gpus && *std::ranges::max_element(options.devices) > cpu_info().cores)
    std::printf("\nthis machine has %d cores: more devices than that share them and can't be faster\n",
                cpu_info().cores);
}

void print_progress(const trials::SpeedupRound& round, int rounds) {
  const auto milliseconds = [](double seconds) { return report::fixed(1e3 * seconds, 1) + " ms"; };
  std::string found = milliseconds(round.seconds_per_step) + " a step";
  if (round.seconds_per_step_apart) found += ", apart " + milliseconds(*round.seconds_per_step_apart);
  std::fprintf(stderr, "round %d of %d: batch %ld on %ld: %s\n", round.round, rounds, static_cast<long>(round.batch),
               static_cast<long>(round.devices), found.c_str());
}

int speedup(const SpeedupCommand& command) {
  trials::SpeedupOptions options = command.options;
  options.config = command.config.resolve(options.given);
  options = trials::with_defaults(std::move(options));
  command.files.check();
  const auto result = trials::speedup(options, [&](const trials::SpeedupRound& round) {
    if (!options.config.quiet) print_progress(round, options.rounds);
  });
  std::printf("%s on %s, mean of %ld steps; times and speedups are medians of %d interleaved %s\n",
              options.config.model.c_str(), options.config.data.c_str(), static_cast<long>(result.steps),
              options.rounds, options.rounds == 1 ? "round" : "rounds");
  const bool gpus = !cuda_devices().empty();
  std::vector<SpeedupLine> lines;
  for (size_t row = 0; row < result.rows.size(); ++row) lines.push_back({result.rows[row], result.forecasts[row]});
  print(lines, result.rows, options, gpus);
  if (!result.no_forecast.empty()) std::printf("no forecast: %s\n", result.no_forecast.c_str());
  command.files.write(table_of(lines, gpus), report::speedup_figure(result.rows));
  return 0;
}

}  // namespace

void setup_speedup(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<SpeedupCommand>();
  CLI::App* command = app.add_subcommand("speedup", "How a step gets faster with devices: lockstep speedup MODEL");
  add_config_options(*command, options->config,
                     {"resume", "out", "devices", "blocks", "batch", "save-every", "check-data", "scale-batch"});
  command->add_option("--batch", options->options.batches, "Global batch sizes; default: 256, or 8 clouds")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Measure");
  command->add_option("--devices", options->options.devices, "Numbers of devices; default 1,2")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Measure");
  command->add_option("--rounds", options->options.rounds, "Rounds over all of them; default 3")->group("Measure");
  command
      ->add_flag(
          "--apart", options->options.apart,
          "Also as many trainings as devices at once, a device each and nothing in common: what the machine gives")
      ->group("Measure");
  options->files.add_options(*command, "Measure", "STEM.svg and STEM.png, with the ideal line");
  command->callback([options, &chosen] { chosen = [options] { return speedup(*options); }; });
}

}  // namespace lockstep::cli
