// SPDX-License-Identifier: Apache-2.0
// Forecasts beside what was measured: networks, batches and the placements that two cores can run. Each network is
// profiled on one device, in rounds that take turns with those of its placements.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/allocator.h"
#include "lockstep/base/detail/median.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"
#include "lockstep/trials/forecast.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using trials::ForecastRow;

// This program as a process of one of the hosts that tools/hosts.sh makes.
constexpr const char* kAsHost = "--as-host";

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
  int64_t slices = 1;
  std::string rate = {};  // of the link between namespaces; empty: processes of one network
};

std::vector<Way> ways() {
  return {{"1x2", {1, 2}, {"data", "p2"}},
          {"2x1", {2}, {"data", "p2"}},
          {"2x1", {2}, {"data"}, 1, "10gbit"},
          {"2x1", {2}, {"data", "p2"}, 1, "1gbit"},
          {"2x1", {2}, {"data", "p2"}, 1, "100mbit"},
          {"1x2", {2}, {"data", "t2"}, 2}};
}

struct Cell {
  std::string training;
  std::string placement;
  int64_t slices;
  ForecastRow row;
  double off() const { return *row.measured / row.step.seconds - 1; }
};

std::string name_of(const Training& training) {
  return text(training.model, " ", training.batch);
}

bool is_sparse(const Training& training) {
  return std::string_view(training.model).starts_with("mink");
}

std::vector<std::string> launcher_of(const std::string& rate) {
  if (rate.empty()) return {};
  return {LOCKSTEP_HOSTS_SH, "--rate", rate, "2", own_path(), kAsHost};
}

trials::ForecastOptions options_of(const Training& training, const Way& way, int64_t rounds) {
  trials::ForecastOptions options{.devices = way.devices,
                                  .hosts = way.hosts,
                                  .splits = way.splits,
                                  .rounds = static_cast<int>(rounds),
                                  .launcher = launcher_of(way.rate)};
  options.config.model = training.model;
  options.config.data = training.data;
  options.config.batch = training.batch;
  options.config.set = training.set;
  options.config.slices = way.slices;
  if (is_sparse(training)) {
    options.config.voxel = 0.2;
    options.profile_steps = 8;
  }
  return trials::with_defaults(options);
}

/// Links by rate, measured once; those that can't be had are left out.
using Links = std::map<std::string, parallel::LinkCost>;

Links measure_links() {
  Links links;
  for (const Way& way : ways()) {
    if (way.hosts != std::string_view("2x1")) continue;
    try {
      const auto link = links[way.rate] = trials::measure_link(launcher_of(way.rate));
      std::printf("link %s: %s Gbit/s, %s\n", way.rate.empty() ? "here" : way.rate.c_str(),
                  report::fixed(8e-9 * link.bytes_per_second, 2).c_str(),
                  report::duration(link.latency + link.message).c_str());
    } catch (const trials::TrialFailed&) {
      links.erase(way.rate);
      std::printf("link %s: left out\n", way.rate.c_str());
    }
    std::fflush(stdout);
  }
  return links;
}

/// A way to place a training, forecast and run.
struct Placed {
  Way way;
  trials::ForecastOptions options;
  trials::Profiler& profiler;
  std::unique_ptr<trials::Checker> checker = {};
};

trials::ForecastResult forecast_of(const Placed& placed, trials::Profile profile, const Links& links) {
  if (const auto link = links.find(placed.way.rate); link != links.end()) profile.loopback = link->second;
  return trials::forecast(placed.options, profile);
}

void add_cells(std::vector<Cell>& cells, const Training& training, const Placed& placed,
               trials::ForecastResult result) {
  placed.checker->fill(result);
  for (ForecastRow& row : result.rows) {
    if (!row.measured) continue;
    const std::string more = placed.way.slices > 1     ? text(", S = ", placed.way.slices)
                             : placed.way.rate.empty() ? ""
                                                       : ", " + placed.way.rate;
    cells.push_back({name_of(training),
                     text(row.processes > 1 ? text(row.processes, "x", row.threads) : std::to_string(row.threads), " ",
                          row.split, more),
                     placed.way.slices, std::move(row)});
  }
}

// Profiles and checks take turns, round by round, so that what else the machine does falls on both alike. No forecast
// sees what a check measured.
std::vector<Cell> cells_of(const Training& training, int64_t rounds, const Links& links) {
  std::map<int64_t, trials::Profiler> profilers;  // by slices
  std::vector<Placed> all;
  for (const Way& way : ways()) {
    if (way.slices > 1 && is_sparse(training)) continue;  // sparse convolutions are computed whole
    if (!way.rate.empty() && !links.contains(way.rate)) continue;
    const auto options = options_of(training, way, rounds);
    auto wanted = trials::profile_options(options);
    wanted.link = false;
    wanted.slows = true;
    const auto profiler = profilers.try_emplace(way.slices, wanted).first;
    all.push_back({way, options, profiler->second});
  }
  for (int64_t round = 0; round < rounds; ++round) {
    for (auto& [slices, profiler] : profilers) profiler.measure_round();
    if (round == 0)
      for (auto& [slices, profiler] : profilers) {
        const trials::Profile first = profiler.profile();
        for (Placed& placed : all)
          if (&placed.profiler == &profiler)
            placed.checker =
                std::make_unique<trials::Checker>(forecast_of(placed, first, links), placed.options, first.steps);
      }
    for (Placed& placed : all) placed.checker->measure_round();
  }
  std::vector<Cell> cells;
  for (auto& [slices, profiler] : profilers) {
    const trials::Profile profile = profiler.profile();
    for (const Placed& placed : all)
      if (&placed.profiler == &profiler) add_cells(cells, training, placed, forecast_of(placed, profile, links));
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
                       {"rounds differ", "%", percent},
                       {"hit"},
                       {"phase that was off"},
                       {"MiB", "", [](double v) { return report::fixed(v, 0); }},
                       {"was MiB", "", [](double v) { return report::fixed(v, 0); }}});
  for (const Cell& cell : cells)
    table.add({cell.training, cell.placement, cell.row.step.seconds, cell.row.low, cell.row.high, *cell.row.measured,
               cell.off(), cell.row.measured_spread, std::string(cell.row.holds() ? "yes" : "no"),
               trials::phase_that_was_off(cell.row), cell.row.memory_mib, *cell.row.measured_mib});
  std::printf("%s\n", table.to_text().c_str());
}

/// Of splits of the same devices: how often the forecast's best was the measured one's, and by how much it was slower.
struct Choices {
  int64_t made = 0, right = 0;
  double worst = 0;
};

Choices choices_of(const std::vector<Cell>& cells) {
  std::map<std::tuple<std::string, int64_t>, std::vector<const Cell*>> alternatives;
  for (const Cell& cell : cells)
    if (cell.row.processes == 1 && cell.row.devices == 2) alternatives[{cell.training, cell.slices}].push_back(&cell);
  Choices out;
  for (const auto& [key, all] : alternatives) {
    if (all.size() < 2) continue;
    const Cell* chosen = *std::ranges::min_element(all, {}, [](const Cell* c) { return c->row.step.seconds; });
    const Cell* best = *std::ranges::min_element(all, {}, [](const Cell* c) { return *c->row.measured; });
    ++out.made;
    out.right += chosen == best;
    out.worst = std::max(out.worst, *chosen->row.measured / *best->row.measured - 1);
  }
  return out;
}

nlohmann::json summary_of(const std::vector<Cell>& cells) {
  double error = 0, memory = 0, spread = 0;
  int64_t near = 0, hits = 0;
  std::vector<double> errors;
  for (const Cell& cell : cells) {
    errors.push_back(std::abs(cell.off()));
    error += errors.back();
    memory += std::abs(cell.row.memory_mib / *cell.row.measured_mib - 1);
    spread += cell.row.measured_spread;
    near += std::abs(cell.off()) <= 0.06;
    hits += cell.row.holds();
  }
  const auto count = static_cast<double>(cells.size());
  const double middle = median(errors);
  const Choices choices = choices_of(cells);
  const auto percent = [](double part, int digits) { return report::fixed(100 * part, digits); };
  std::printf(
      "%zu cells: mean error %s %% (middle %s %%), %s %% within 6 %%, %s %% in their interval, memory off by %s %%; "
      "the rounds of a cell differ by %s %%; the best split chosen %ld times of %ld, at worst %s %% slower\n",
      cells.size(), percent(error / count, 1).c_str(), percent(middle, 1).c_str(),
      percent(static_cast<double>(near) / count, 0).c_str(), percent(static_cast<double>(hits) / count, 0).c_str(),
      percent(memory / count, 1).c_str(), percent(spread / count, 1).c_str(), static_cast<long>(choices.right),
      static_cast<long>(choices.made), percent(choices.worst, 1).c_str());
  return {{"cells", cells.size()},
          {"mean_error", error / count},
          {"median_error", middle},
          {"within_6_percent", static_cast<double>(near) / count},
          {"in_interval", static_cast<double>(hits) / count},
          {"mean_memory_error", memory / count},
          {"mean_spread_of_rounds", spread / count},
          {"best_split_chosen", choices.right},
          {"splits_to_choose", choices.made},
          {"worst_choice", choices.worst}};
}

nlohmann::json run_all(const Arguments& arguments) {
  const std::string only = arguments.text("--only", "");
  const int64_t rounds = arguments.number("--rounds", 3);
  const Links links = measure_links();
  std::vector<Cell> cells;
  for (const Training& training : trainings()) {
    if (!only.empty() && only != training.model) continue;
    const auto more = cells_of(training, rounds, links);
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
                                {"measured_ms", 1e3 * *cell.row.measured},
                                {"spread_of_rounds", cell.row.measured_spread},
                                {"memory_mib", cell.row.memory_mib},
                                {"measured_mib", *cell.row.measured_mib}});
  return results;
}

// Starts the one process of this host that takes part in a trial.
int serve_as_host() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    require(value != nullptr, "forecast_bench", name, " is not set, expected ", kAsHost, " behind tools/hosts.sh");
    return std::string(value);
  };
  std::vector<std::string> hosts;
  std::istringstream names(variable("HOSTS"));
  for (std::string name; std::getline(names, name, ',');) hosts.push_back(name);
  return launch::run(
      {.program = {own_path()}, .hosts = hosts, .rank_offset = std::stoi(variable("HOST")), .no_prefix = true});
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  lockstep::tune_allocator();
  lockstep::pin_numerics();
  if (argc == 2 && argv[1] == std::string_view(kAsHost)) return serve_as_host();
  if (lockstep::trials::serve()) return 0;
  return run_program(argc, argv,
                     {.measures = "Forecasts of steps beside what was measured.",
                      .measure = run_all,
                      .options = {{"--only", "NETWORK", "lenet, resnet18, vgg or minkunet14a"},
                                  {"--rounds", "N", "of profiles and of checks; default 3"}}});
}
