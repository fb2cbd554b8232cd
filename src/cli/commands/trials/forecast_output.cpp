// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/trials/forecast_output.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/report/format.h"

namespace lockstep::cli {
namespace {

using trials::ForecastResult;
using trials::ForecastRow;

constexpr double kMebibyte = 1 << 20;

std::string shown_ms(double seconds) {
  return report::fixed(1e3 * seconds, 1);
}

std::string placement_of(const ForecastRow& row) {
  return row.processes > 1 ? text(row.processes, "x", row.threads) : std::to_string(row.threads);
}

std::string split_of(const ForecastRow& row) {
  return row.chosen ? text("auto: ", row.split) : row.split;
}

double part_of(const ForecastRow& row, double seconds) {
  return row.step.seconds > 0 ? seconds / row.step.seconds : 0;
}

std::string link_rate(double bytes_per_second) {
  if (std::isinf(bytes_per_second)) return "never";
  return report::short_number(8 * bytes_per_second) + "bit/s";
}

report::Cell break_even_of(const ForecastRow& row) {
  if (!row.break_even) return {};
  return link_rate(*row.break_even);
}

report::Cell number_or_none(const std::optional<double>& value, double factor = 1) {
  if (!value) return {};
  return factor * *value;
}

}  // namespace

report::Table forecast_table(const ForecastResult& result) {
  const auto percent = [](double part) { return report::fixed(100 * part, 1); };
  const auto two_digits = [](double value) { return report::fixed(value, 2); };
  const auto whole = [](double value) { return report::fixed(value, 0); };
  const bool several = std::ranges::any_of(result.rows, [](const auto& row) { return row.processes > 1; });
  std::vector<report::Column> columns{{"devices"},
                                      {"placement"},
                                      {"split"},
                                      {"step", "ms"},
                                      {"speedup", "", two_digits},
                                      {"ideal", "", [](double value) { return report::compact(value, 4); }},
                                      {"communication", "%", percent},
                                      {"waiting", "%", percent},
                                      {"bubble", "%", percent},
                                      {"update", "%", percent},
                                      {"data", "%", percent},
                                      {"memory", "MiB", whole},
                                      {"training"},
                                      {"device hours", "", [](double value) { return report::compact(value, 3); }},
                                      {"best"}};
  if (several) columns.insert(columns.begin() + 12, {{"sent", "MiB", two_digits}, {"pays from"}});
  report::Table table(columns);
  for (const ForecastRow& row : result.rows) {
    std::vector<report::Cell> cells{
        row.devices,
        placement_of(row),
        split_of(row),
        text(shown_ms(row.step.seconds), " [", shown_ms(row.low), ", ", shown_ms(row.high), "]"),
        row.speedup,
        row.ideal,
        part_of(row, row.step.communication),
        part_of(row, row.step.wait),
        part_of(row, row.step.bubble),
        part_of(row, row.step.update),
        part_of(row, row.step.data),
        row.memory_mib,
        report::duration(row.training_seconds),
        row.device_hours(),
        row.best ? report::Cell("*") : report::Cell(std::string())};
    if (several)
      cells.insert(cells.begin() + 12, {static_cast<double>(row.step.bytes_sent) / kMebibyte, break_even_of(row)});
    table.add(std::move(cells));
  }
  return table;
}

report::Table forecast_rows(const ForecastResult& result) {
  report::Table table({{"devices"},
                       {"processes"},
                       {"threads"},
                       {"split"},
                       {"batch"},
                       {"replicas"},
                       {"forecast_ms"},
                       {"low_ms"},
                       {"high_ms"},
                       {"measured_ms"},
                       {"measured_spread"},
                       {"speedup"},
                       {"ideal"},
                       {"forward_ms"},
                       {"backward_ms"},
                       {"update_ms"},
                       {"communication_ms"},
                       {"data_ms"},
                       {"bubble_ms"},
                       {"waiting_ms"},
                       {"memory_mib"},
                       {"measured_mib"},
                       {"bytes_sent"},
                       {"break_even_bytes_per_second"},
                       {"training_seconds"},
                       {"device_hours"},
                       {"best"},
                       {"note"}});
  for (const ForecastRow& row : result.rows) {
    const auto& step = row.step;
    std::string notes;
    for (const auto& note : row.notes) notes += (notes.empty() ? "" : "; ") + note;
    table.add({row.devices,
               row.processes,
               row.threads,
               row.split,
               row.batch,
               row.replicas,
               1e3 * step.seconds,
               1e3 * row.low,
               1e3 * row.high,
               number_or_none(row.measured, 1e3),
               row.measured ? report::Cell(row.measured_spread) : report::Cell(),
               row.speedup,
               row.ideal,
               1e3 * step.forward,
               1e3 * step.backward,
               1e3 * step.update,
               1e3 * step.communication,
               1e3 * step.data,
               1e3 * step.bubble,
               1e3 * step.wait,
               row.memory_mib,
               number_or_none(row.measured_mib),
               step.bytes_sent,
               number_or_none(row.break_even),
               row.training_seconds,
               row.device_hours(),
               int64_t{row.best},
               notes.empty() ? report::Cell() : report::Cell(notes)});
  }
  return table;
}

report::Figure forecast_figure(const ForecastResult& result) {
  report::Figure figure{
      .title = "Speedup", .x = {.label = "devices", .log = true}, .y = {.label = "times one device", .log = true}};
  std::map<std::string, std::vector<const ForecastRow*>> lines;
  for (const ForecastRow& row : result.rows) lines[row.chosen ? "auto" : row.split].push_back(&row);
  report::Series ideal{.name = "ideal", .dashed = true, .reference = true}, seen{.name = "measured", .color = 7};
  int color = 0;
  for (const auto& [name, rows] : lines) {
    report::Series line{.name = name, .color = color}, low{.name = name + ", 80 %", .color = color, .dashed = true};
    report::Series high{.name = "", .color = color, .dashed = true};
    for (const ForecastRow* row : rows) {
      const auto devices = static_cast<double>(row->devices);
      const double scale = row->speedup * row->step.seconds;
      for (report::Series* one : {&line, &low, &high}) one->x.push_back(devices);
      line.y.push_back(row->speedup);
      low.y.push_back(scale / row->high);
      high.y.push_back(scale / row->low);
      if (row->measured) {
        seen.x.push_back(devices);
        seen.y.push_back(scale / *row->measured);
      }
    }
    figure.series.insert(figure.series.end(), {line, low, high});
    ++color;
  }
  for (const ForecastRow& row : result.rows) {
    ideal.x.push_back(static_cast<double>(row.devices));
    ideal.y.push_back(row.ideal);
  }
  if (!seen.x.empty()) figure.series.push_back(seen);
  figure.series.push_back(ideal);
  return figure;
}

std::string checked(const ForecastResult& result) {
  std::string out;
  for (const ForecastRow& row : result.rows) {
    if (!row.measured) continue;
    out +=
        text(out.empty() ? "" : "\n", row.devices, row.devices == 1 ? " device" : " devices", " (", placement_of(row),
             "), ", split_of(row), ": ", trials::verdict(row.step.seconds, row.low, row.high, *row.measured));
    if (row.measured_spread > 0)
      out += text("; its rounds differed by ", report::fixed(100 * row.measured_spread, 1), " %");
    out += "\n";
    if (!row.measured_phases) continue;
    report::Table table({{"phase"}, {"forecast", "ms", shown_ms}, {"was", "ms", shown_ms}});
    const run::Phases forecast = trials::phases_of(row.step);
    for (const auto& [name, member] : run::phase_members)
      table.add({std::string(name), forecast.*member, *row.measured_phases.*member});
    out += table.to_text();
    if (const std::string off = trials::phase_that_was_off(row); !off.empty())
      out += text("beyond its interval, most of it in: ", off, "\n");
  }
  return out.empty() ? "nothing was checked: this machine has fewer cores than each of these placements\n" : out;
}

std::string notes_of(const ForecastResult& result) {
  const trials::Profile& profile = result.profile;
  std::string out = text("measured on ", profile.cores, profile.cores == 1 ? " core" : " cores", " of ",
                         profile.processor.empty() ? "an unnamed processor" : profile.processor, ": ",
                         shown_ms(profile.seconds), " ms a step on one device");
  const auto slowed = [&](const std::vector<double>& passes, const std::vector<double>& memory, const char* which) {
    if (passes.size() > 1)
      out += text(", passes x", report::fixed(passes.back(), 2), " and updates x", report::fixed(memory.back(), 2),
                  " as long in ", profile.cores, which);
  };
  slowed(profile.slowdown.passes, profile.slowdown.memory, " processes at once");
  slowed(profile.slowdown.thread_passes, profile.slowdown.thread_memory, " threads of one");
  out += "; other processors, and GPUs, have other times\n";
  std::map<std::string, std::string> rows;
  for (const ForecastRow& row : result.rows)
    for (const std::string& note : row.notes) {
      std::string& which = rows[note];
      const std::string devices = std::to_string(row.devices);
      if (!which.ends_with(devices)) which += (which.empty() ? "" : ", ") + devices;
    }
  for (const auto& [note, devices] : rows) out += text(devices, " devices: ", note, "\n");
  return out;
}

}  // namespace lockstep::cli
