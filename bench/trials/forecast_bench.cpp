// SPDX-License-Identifier: Apache-2.0
// Forecasts beside what was measured: networks, batches and the placements that two cores can run. Each network is
// profiled on one device; then its placements are forecast, and run in rounds that take turns.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"
#include "lockstep/trials/forecast.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using trials::ForecastRow;

/// A training, and which placements of it are looked at.
struct Training {
  const char* model;
  const char* data;
  int64_t batch;
  std::vector<std::string> set = {};
};

std::vector<Training> trainings() {
  return {{"lenet", "synthetic:1x28x28:10:4096", 64},
          {"lenet", "synthetic:1x28x28:10:4096", 256},
          {"lenet", "synthetic:1x28x28:10:4096", 1024},
          {"resnet18", "synthetic:3x32x32:10:1024", 32, {"width=0.25"}},
          {"resnet18", "synthetic:3x32x32:10:1024", 128, {"width=0.25"}},
          {"vgg", "synthetic:3x32x32:10:1024", 32, {"width=0.25"}},
          {"vgg", "synthetic:3x32x32:10:1024", 128, {"width=0.25"}},
          {"minkunet14a", "rooms:64", 8},
          {"minkunet14a", "rooms:64", 16}};
}

struct Way {
  const char* hosts;
  std::vector<int64_t> devices;
  std::vector<std::string> splits;
  int64_t slices;
};

std::vector<Way> ways() {
  return {{"1x2", {1, 2}, {"data", "p2"}, 1}, {"2x1", {2}, {"data"}, 1}, {"1x2", {2}, {"data", "t2"}, 2}};
}

struct Cell {
  std::string training;
  std::string placement;
  ForecastRow row;
  double off() const { return *row.measured / row.step.seconds - 1; }
};

std::string name_of(const Training& training) {
  return text(training.model, " ", training.batch);
}

bool is_sparse(const Training& training) {
  return std::string_view(training.model).starts_with("mink");
}

trials::ForecastOptions options_of(const Training& training, const Way& way, int64_t rounds) {
  trials::ForecastOptions options{
      .devices = way.devices, .hosts = way.hosts, .splits = way.splits, .rounds = static_cast<int>(rounds)};
  options.config.model = training.model;
  options.config.data = training.data;
  options.config.batch = training.batch;
  options.config.set = training.set;
  options.config.slices = way.slices;
  if (is_sparse(training)) options.config.voxel = 0.1;
  return trials::with_defaults(options);
}

std::vector<Cell> cells_of(const Training& training, int64_t rounds) {
  std::vector<Cell> cells;
  std::optional<trials::Profile> profile;
  int64_t slices = 0;
  for (const Way& way : ways()) {
    if (way.slices > 1 && is_sparse(training)) continue;  // sparse convolutions are computed whole
    const auto options = options_of(training, way, rounds);
    if (!profile || slices != way.slices) {
      auto wanted = trials::profile_options(options);
      wanted.link = way.slices == 1;
      wanted.slows = true;
      profile = trials::measure_profile(wanted);
      slices = way.slices;
    }
    auto result = trials::forecast(options, *profile);
    trials::check(result, options);
    for (ForecastRow& row : result.rows) {
      if (!row.measured) continue;
      const std::string slice = way.slices > 1 ? text(", S = ", way.slices) : "";
      cells.push_back({name_of(training),
                       text(row.processes > 1 ? text(row.processes, "x", row.threads) : std::to_string(row.threads),
                            " ", row.split, slice),
                       std::move(row)});
    }
  }
  return cells;
}

void print(const std::vector<Cell>& cells) {
  const auto ms = [](double seconds) { return report::fixed(1e3 * seconds, 1); };
  const auto percent = [](double part) { return report::fixed(100 * part, 1); };
  report::Table table({{"training"},
                       {"placement"},
                       {"forecast", "ms", ms},
                       {"low", "ms", ms},
                       {"high", "ms", ms},
                       {"was", "ms", ms},
                       {"off", "%", percent},
                       {"hit"},
                       {"phase that was off"},
                       {"MiB", "", [](double v) { return report::fixed(v, 0); }},
                       {"was MiB", "", [](double v) { return report::fixed(v, 0); }}});
  for (const Cell& cell : cells)
    table.add({cell.training, cell.placement, cell.row.step.seconds, cell.row.low, cell.row.high, *cell.row.measured,
               cell.off(), std::string(cell.row.holds() ? "yes" : "no"), trials::phase_that_was_off(cell.row),
               cell.row.memory_mib, *cell.row.measured_mib});
  std::printf("%s\n", table.to_text().c_str());
}

nlohmann::json summary_of(const std::vector<Cell>& cells) {
  double error = 0, memory = 0;
  int64_t near = 0, hits = 0;
  for (const Cell& cell : cells) {
    error += std::abs(cell.off());
    memory += std::abs(cell.row.memory_mib / *cell.row.measured_mib - 1);
    near += std::abs(cell.off()) <= 0.06;
    hits += cell.row.holds();
  }
  const auto count = static_cast<double>(cells.size());
  std::printf("%zu cells: mean error %s %%, %s %% within 6 %%, %s %% in their interval, memory off by %s %%\n",
              cells.size(), report::fixed(100 * error / count, 1).c_str(),
              report::fixed(100 * static_cast<double>(near) / count, 0).c_str(),
              report::fixed(100 * static_cast<double>(hits) / count, 0).c_str(),
              report::fixed(100 * memory / count, 1).c_str());
  return {{"cells", cells.size()},
          {"mean_error", error / count},
          {"within_6_percent", static_cast<double>(near) / count},
          {"in_interval", static_cast<double>(hits) / count},
          {"mean_memory_error", memory / count}};
}

nlohmann::json run_all(const Arguments& arguments) {
  const std::string only = arguments.text("--only", "");
  const int64_t rounds = arguments.number("--rounds", 3);
  std::vector<Cell> cells;
  for (const Training& training : trainings()) {
    if (!only.empty() && only != training.model) continue;
    const auto more = cells_of(training, rounds);
    print(more);
    std::fflush(stdout);
    cells.insert(cells.end(), more.begin(), more.end());
  }
  if (cells.empty()) throw UsageError("--only is '" + only + "', expected lenet, resnet18, vgg or minkunet14a");
  nlohmann::json results{{"summary", summary_of(cells)}, {"cells", nlohmann::json::array()}};
  for (const Cell& cell : cells)
    results["cells"].push_back({{"training", cell.training},
                                {"placement", cell.placement},
                                {"forecast_ms", 1e3 * cell.row.step.seconds},
                                {"low_ms", 1e3 * cell.row.low},
                                {"high_ms", 1e3 * cell.row.high},
                                {"measured_ms", 1e3 * *cell.row.measured}});
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  lockstep::tune_allocator();
  lockstep::pin_numerics();
  if (lockstep::trials::serve()) return 0;
  return run_program(argc, argv,
                     {.measures = "Forecasts of steps beside what was measured.",
                      .measure = run_all,
                      .options = {{"--only", "NETWORK", "lenet, resnet18, vgg or minkunet14a"},
                                  {"--rounds", "N", "of profiles and of checks; default 3"}}});
}
