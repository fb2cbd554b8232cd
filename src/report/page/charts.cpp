// SPDX-License-Identifier: Apache-2.0
// The page's charts, and the bars that show where a step's time goes.
#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/report/curves.h"
#include "lockstep/report/format.h"
#include "report/draw/draw_figure.h"
#include "report/escape.h"
#include "report/page/page.h"

namespace lockstep::report {
namespace {

constexpr FigureSize chart_size{380, 245};

std::string key(const std::string& mark, const std::string& words) {
  return "<li>" + mark + escape(words) + "</li>";
}

// Which colour is which run says the row of buttons above all charts; the rest is said here.
std::string legend_of(const Figure& figure) {
  std::string items;
  bool dashed = false;
  for (const auto& series : figure.series) {
    dashed = dashed || series.dashed;
    if (series.group < 0 && figure.series.size() > 1)
      items +=
          key(series.reference ? "<span class=\"swatch dashed ink-muted\"></span>" : swatch(series.color), series.name);
  }
  if (dashed)
    items += key("<span class=\"swatch dashed\"></span>", "train") + key("<span class=\"swatch\"></span>", "test");
  return items.empty() ? "" : "<ul class=\"legend\">" + items + "</ul>";
}

// What a chart says, for those who do not see it.
std::string described(const Figure& figure) {
  std::string words = figure.title + " by " + figure.x.label + ".";
  for (size_t s = 0; s < figure.series.size() && s < 8; ++s) {
    const Series& series = figure.series[s];
    if (series.y.empty()) continue;
    words += text(" ", series.name, ": ", compact(series.y.front(), 4));
    if (series.y.size() > 1) words += text(" to ", compact(series.y.back(), 4));
    words += ".";
  }
  return words;
}

std::string chart(const Figure& figure) {
  if (figure.series.empty()) return "";
  Figure shown = figure;
  shown.title = described(figure);  // becomes the picture's label
  const std::string unit = figure.y.label.empty() ? "" : "<span class=\"muted\">" + escape(figure.y.label) + "</span>";
  return text("<figure class=\"card chart\">\n<figcaption><h3>", escape(figure.title), "</h3>", unit, legend_of(figure),
              "</figcaption>\n", to_inline_svg(shown, chart_size), "</figure>\n");
}

std::string grid(const std::string& charts) {
  return charts.empty() ? "" : "<div class=\"grid\">\n" + charts + "</div>\n";
}

// The mean over the run's lines, of which the first is left out where there are others: it pays for warming up.
std::optional<run::Phases> mean_phases(const run::RunData& run) {
  std::vector<const run::Phases*> all;
  for (const auto& line : run.metrics)
    if (line.subset == data::Subset::train && line.phases) all.push_back(&*line.phases);
  if (all.empty()) return std::nullopt;
  if (all.size() > 1) all.erase(all.begin());
  run::Phases mean;
  for (const run::Phases* phases : all) mean += *phases;
  return mean /= static_cast<double>(all.size());
}

std::string phase_legend() {
  std::string items;
  for (size_t p = 0; p < run::phase_members.size(); ++p)
    items += text("<li><span class=\"swatch box ink-", p, "\"></span>", run::phase_members[p].first, "</li>");
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

// A bar as long as the step took, against the longest of all.
std::string bar(const std::string& name, const run::Phases& phases, double longest) {
  std::string parts, words;
  for (size_t p = 0; p < run::phase_members.size(); ++p) {
    const double seconds = phases.*run::phase_members[p].second;
    if (!(seconds > 0) || !(longest > 0)) continue;
    const std::string label =
        text(run::phase_members[p].first, " ", duration(seconds), ", ", fixed(100 * seconds / phases.sum(), 1), " %");
    parts += text("<i class=\"ink-", p, "\" style=\"width:", fixed(100 * seconds / longest, 2), "%\" title=\"", label,
                  "\"></i>");
    words += (words.empty() ? "" : "; ") + label;
  }
  return text("<div class=\"barname\"><span>", escape(name), "</span><span>", duration(phases.sum()),
              "</span></div>\n<div class=\"bar\" role=\"img\" aria-label=\"", words, "\">", parts, "</div>\n");
}

std::string phase_table(const run::Phases& phases) {
  std::string rows;
  for (size_t p = 0; p < run::phase_members.size(); ++p) {
    const double seconds = phases.*run::phase_members[p].second, share = seconds / phases.sum();
    if (std::isfinite(share))
      rows += share_row(run::phase_members[p].first, share, static_cast<int>(p),
                        duration(seconds) + ", " + fixed(100 * share, 1) + " %");
  }
  return "<table class=\"shares\">" + rows + "</table>\n";
}

std::string bars(const std::vector<std::pair<std::string, run::Phases>>& rows) {
  if (rows.empty()) return "";
  double longest = 0;
  for (const auto& [name, phases] : rows) longest = std::max(longest, phases.sum());
  std::string out = "<div class=\"card wide\">\n" + phase_legend();
  for (const auto& [name, phases] : rows) out += bar(name, phases, longest);
  if (rows.size() == 1) out += phase_table(rows[0].second);
  return out + "</div>\n";
}

std::string speedup_table(const std::vector<run::SpeedupRow>& rows) {
  std::string lines;
  for (const auto& row : rows) {
    lines += "<tr>";
    for (const std::string& words :
         {text(row.devices), text(row.batch), compact(static_cast<double>(row.batch) / std::max(1, row.devices), 4),
          duration(row.seconds_per_step), fixed(row.speedup, 2), text(row.devices)})
      lines += "<td class=\"n\">" + words + "</td>";
    lines += "</tr>\n";
  }
  std::string heading;
  for (const char* name : {"devices", "batch", "each", "step", "speedup", "ideal"})
    heading += text("<th scope=\"col\" class=\"n\">", name, "</th>");
  return text("<div class=\"card scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Speedup\">\n<table><thead><tr>",
              heading, "</tr></thead>\n<tbody>\n", lines, "</tbody></table>\n</div>\n");
}

}  // namespace

std::string chart_section(std::span<const run::RunData> runs) {
  return grid(chart(loss_figure(runs)) + chart(accuracy_figure(runs)) + chart(learning_rate_figure(runs)) +
              chart(throughput_figure(runs)) + chart(gradient_norm_figure(runs)));
}

std::string time_section(std::span<const run::RunData> runs) {
  std::vector<std::pair<std::string, run::Phases>> rows;
  for (const auto& run : runs)
    if (const auto phases = mean_phases(run)) rows.emplace_back(runs.size() == 1 ? "mean step" : run.name, *phases);
  const std::string course = runs.size() == 1 ? chart(phases_figure(runs[0])) : "";
  return grid(bars(rows) + course);
}

std::string speedup_section(std::span<const run::RunData> runs) {
  std::string out;
  for (const auto& run : runs) {
    if (!run.summary || run.summary->speedup.empty()) continue;
    const auto& rows = run.summary->speedup;
    Figure figure = speedup_figure(rows);
    if (runs.size() > 1) figure.title += ", " + run.name;
    std::vector<std::pair<std::string, run::Phases>> phases;
    for (const auto& row : rows)
      if (row.phases)
        phases.emplace_back(text("batch ", row.batch, ", ", row.devices, row.devices == 1 ? " device" : " devices"),
                            *row.phases);
    out += grid(chart(figure) + speedup_table(rows) + bars(phases));
  }
  return out;
}

}  // namespace lockstep::report
