// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/curves.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/report/format.h"

namespace lockstep::report {
namespace {

bool all_know_their_epoch(std::span<const run::RunData> runs) {
  return std::all_of(runs.begin(), runs.end(), [](const run::RunData& run) {
    return std::all_of(run.metrics.begin(), run.metrics.end(),
                       [](const run::Metrics& line) { return line.epoch.has_value(); });
  });
}

using Measure = std::optional<double> run::Metrics::*;

Series series_of(const run::RunData& run, data::Subset subset, Measure measure, bool by_epoch) {
  Series series;
  for (const auto& line : run.metrics) {
    if (line.subset != subset || !(line.*measure)) continue;
    if (!by_epoch && !line.step) continue;
    series.x.push_back(by_epoch ? *line.epoch : static_cast<double>(*line.step));
    series.y.push_back(*(line.*measure));
  }
  return series;
}

// Whether there is something to say about train and test: else a run's name alone will do.
Figure figure_of(const char* title, std::span<const run::RunData> runs, std::initializer_list<data::Subset> splits,
                 Measure measure) {
  const bool by_epoch = all_know_their_epoch(runs);
  Figure figure{title, {.label = by_epoch ? "epoch" : "step"}};
  for (size_t r = 0; r < runs.size(); ++r)
    for (const data::Subset subset : splits) {
      Series series = series_of(runs[r], subset, measure, by_epoch);
      if (series.x.empty()) continue;
      const bool alone = runs.size() == 1;
      series.name = alone                ? to_string(subset)
                    : splits.size() == 1 ? runs[r].name
                                         : text(runs[r].name, ", ", to_string(subset));
      series.color = alone ? static_cast<int>(subset) : static_cast<int>(r);
      series.group = alone ? -1 : static_cast<int>(r);
      series.dashed = !alone && splits.size() > 1 && subset == data::Subset::train;
      figure.series.push_back(std::move(series));
    }
  return figure;
}

}  // namespace

Figure loss_figure(std::span<const run::RunData> runs) {
  return figure_of("Loss", runs, {data::Subset::train, data::Subset::test}, &run::Metrics::loss);
}

Figure accuracy_figure(std::span<const run::RunData> runs) {
  return figure_of("Accuracy", runs, {data::Subset::train, data::Subset::test}, &run::Metrics::accuracy);
}

Figure learning_rate_figure(std::span<const run::RunData> runs) {
  Figure figure = figure_of("Learning rate", runs, {data::Subset::train}, &run::Metrics::lr);
  figure.y.low = 0;
  return figure;
}

Figure throughput_figure(std::span<const run::RunData> runs) {
  Figure figure = figure_of("Throughput", runs, {data::Subset::train}, &run::Metrics::examples_per_second);
  figure.y.label = run::pace_units(runs);
  figure.y.low = 0;
  return figure;
}

Figure gradient_norm_figure(std::span<const run::RunData> runs) {
  return figure_of("Gradient norm", runs, {data::Subset::train}, &run::Metrics::gradient_norm);
}

Figure phases_figure(const run::RunData& run) {
  const bool by_epoch = all_know_their_epoch({&run, 1});
  Figure figure{"Time per step", {.label = by_epoch ? "epoch" : "step"}, {.label = "milliseconds", .low = 0}};
  figure.stacked = true;
  for (size_t p = 0; p < run::phase_members.size(); ++p)
    figure.series.push_back({.name = run::phase_members[p].first, .color = static_cast<int>(p)});
  // A stack with hundreds of columns is noise: as many lines as make a column are taken together.
  std::vector<const run::Metrics*> lines;
  for (const auto& line : run.metrics)
    if (line.subset == data::Subset::train && line.phases && (by_epoch || line.step)) lines.push_back(&line);
  const size_t columns = std::min<size_t>(lines.size(), 60);
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = lines.size() * c / columns, end = lines.size() * (c + 1) / columns;
    for (size_t p = 0; p < run::phase_members.size(); ++p) {
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += *lines[i]->phases.*run::phase_members[p].second;
      figure.series[p].x.push_back(by_epoch ? *lines[end - 1]->epoch : static_cast<double>(*lines[end - 1]->step));
      figure.series[p].y.push_back(sum / static_cast<double>(end - begin) * 1e3);
    }
  }
  if (columns == 0) figure.series.clear();
  return figure;
}

Figure speedup_figure(std::span<const run::SpeedupRow> rows) {
  Figure figure{"Speedup", {.label = "devices", .whole = true}, {.low = 0}};
  std::map<int64_t, std::vector<run::SpeedupRow>> by_batch;
  for (const auto& row : rows) by_batch[row.batch].push_back(row);
  int most = 1;
  for (auto& [batch, of_batch] : by_batch) {
    std::sort(of_batch.begin(), of_batch.end(), [](const auto& a, const auto& b) { return a.devices < b.devices; });
    Series series{.name = text("batch ", batch), .color = static_cast<int>(figure.series.size())};
    for (const auto& row : of_batch) {
      series.x.push_back(row.devices);
      series.y.push_back(row.speedup);
      most = std::max(most, row.devices);
    }
    figure.series.push_back(std::move(series));
  }
  if (figure.series.empty()) return figure;
  const double last = most;
  figure.series.push_back({.name = "ideal", .x = {1, last}, .y = {1, last}, .reference = true});
  // The ideal belongs into the picture, however far the measured stays below it.
  double highest = last;
  for (const auto& row : rows) highest = std::max(highest, row.speedup);
  figure.y.high = highest;
  figure.x.low = 1;
  return figure;
}

void write_curves(const run::Folder& folder, std::span<const run::Metrics> metrics) {
  const run::RunData run{.name = folder.folder.filename().string(), .metrics = {metrics.begin(), metrics.end()}};
  write_curves(folder.folder / "curves", {&run, 1});
}

void write_curves(const std::filesystem::path& stem, std::span<const run::RunData> runs) {
  const Figure figures[] = {loss_figure(runs), accuracy_figure(runs)};
  write_figures(stem, figures);
}

}  // namespace lockstep::report
