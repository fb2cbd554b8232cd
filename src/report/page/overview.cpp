// SPDX-License-Identifier: Apache-2.0
// The top of the page: figures of one run, several runs beside each other, whether they ended with the same weights.
#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "report/escape.h"
#include "report/page/page.h"

namespace lockstep::report {
namespace {

constexpr int hash_digits = 12;  // enough to tell runs apart at a glance

// Names and values in the order of their file.
using Items = std::vector<std::pair<std::string, std::string>>;

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

// What config.toml sets: "key = value" lines below "[section]" lines, values as they are written.
Items settings_of(const std::string& config) {
  Items items;
  std::string prefix;
  for (size_t at = 0; at < config.size();) {
    const size_t end = std::min(config.find('\n', at), config.size());
    const std::string line = trimmed(config.substr(at, end - at));
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      prefix = line.substr(1, line.find(']') - 1) + ".";
      continue;
    }
    const size_t equals = line.find('=');
    if (equals != std::string::npos)
      items.emplace_back(prefix + trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
  }
  return items;
}

struct Row {
  std::string name;
  std::string value;  // empty: not known
};

std::string shown(const std::optional<double>& value) {
  return value ? fixed(*value, 4) : "";
}

// `units`: of the pace, of all runs shown; a run's own stands beside its figure where they differ.
std::vector<Row> figures_of(const run::RunData& run, const std::string& units) {
  std::optional<double> seconds;
  if (!run.metrics.empty()) seconds = run.metrics.back().seconds;
  if (run.summary && run.summary->seconds > 0) seconds = run.summary->seconds;
  auto pace = run::mean_pace(run.metrics);
  if (!pace && run.summary) pace = run.summary->examples_per_second;
  const std::string own_unit = run::pace_units({&run, 1});
  return {{"test accuracy", shown(final_figure(run, data::Subset::test, &run::Metrics::accuracy))},
          {"test mIoU", shown(final_figure(run, data::Subset::test, &run::Metrics::mean_iou))},
          {"test loss", shown(final_figure(run, data::Subset::test, &run::Metrics::loss))},
          {"train accuracy", shown(final_figure(run, data::Subset::train, &run::Metrics::accuracy))},
          {"train loss", shown(final_figure(run, data::Subset::train, &run::Metrics::loss))},
          {"time", seconds ? duration(*seconds) : ""},
          {"mean " + units, pace ? short_number(*pace) + (own_unit == units ? "" : " " + own_unit) : ""},
          {"epochs", run.summary && run.summary->epochs > 0 ? compact(run.summary->epochs, 4) : ""},
          {"parameters", run.summary && run.summary->parameters > 0 ? grouped(run.summary->parameters) : ""}};
}

std::string cell(const std::string& value, const char* kind = "n") {
  return text("<td class=\"", kind, "\">", value.empty() ? "<span class=\"muted\">&ndash;</span>" : escape(value),
              "</td>");
}

std::string comparison_row(const run::RunData& run, size_t number, const std::string& units,
                           const std::vector<bool>& known) {
  const run::Summary none, &summary = run.summary ? *run.summary : none;
  std::string row = text("<tr data-run=\"", number, "\"><th scope=\"row\" class=\"name\">",
                         swatch(static_cast<int>(number)), escape(run.name), "</th>");
  row += cell(summary.placement, "name") + cell(summary.replicas > 0 ? text(summary.replicas) : "");
  const auto figures = figures_of(run, units);
  for (size_t f = 0; f < figures.size(); ++f)
    if (known[f]) row += cell(figures[f].value);
  row += summary.hash.empty() ? cell("", "hash")
                              : text("<td class=\"hash\"><code title=\"", escape(summary.hash), "\">",
                                     escape(summary.hash.substr(0, hash_digits)), "</code></td>");
  return row + cell(summary.state, "name") + "</tr>\n";
}

// A table of what differs: a row a name, a column a run.
std::string difference_rows(std::span<const run::RunData> runs, const std::vector<Items>& items) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> values;
  for (size_t r = 0; r < runs.size(); ++r)
    for (const auto& [name, value] : items[r]) {
      auto& row = values[name];
      if (row.empty()) {
        names.push_back(name);
        row.resize(runs.size());
      }
      row[r] = value;
    }
  std::string rows;
  for (const auto& name : names) {
    const auto& row = values[name];
    if (std::set(row.begin(), row.end()).size() == 1) continue;
    rows += text("<tr><th scope=\"row\" class=\"name\">", escape(name), "</th>");
    for (const auto& value : row) rows += cell(value, "name");
    rows += "</tr>\n";
  }
  return rows;
}

using NamesByHash = std::map<std::string, std::vector<std::string>>;

NamesByHash names_by_hash(std::span<const run::RunData> runs) {
  NamesByHash names;
  for (const auto& run : runs)
    if (run.summary && !run.summary->hash.empty()) names[run.summary->hash].push_back(run.name);
  return names;
}

// What runs with the same value promise to end with the same weights; empty of one that makes no promise. A run that
// was stopped early has its weights from there.
std::string promise_of(const run::Summary& summary) {
  if (summary.recipe.empty() || summary.hash.empty()) return "";
  std::string promise = text(summary.recipe, " ", summary.steps);
  for (const auto& [name, value] : summary.fingerprint) promise += text("\n", name, " ", value);
  return promise;
}

// Runs that promise the same and did not keep it.
NamesByHash broken_promises(std::span<const run::RunData> runs) {
  std::map<std::string, std::vector<run::RunData>> alike;
  for (const auto& run : runs)
    if (run.summary) alike[promise_of(*run.summary)].push_back({.name = run.name, .summary = run.summary});
  alike.erase("");
  NamesByHash broken;
  for (const auto& [promise, group] : alike)
    if (const NamesByHash found = names_by_hash(group); found.size() > 1)
      for (const auto& [hash, names] : found) broken[hash].insert(broken[hash].end(), names.begin(), names.end());
  return broken;
}

std::string list_of(const NamesByHash& names_by_hash) {
  std::string list;
  for (const auto& [hash, names] : names_by_hash) {
    list += text("<li><code>", escape(hash.substr(0, hash_digits)), "</code> ");
    for (size_t n = 0; n < names.size(); ++n) list += (n == 0 ? "" : ", ") + escape(names[n]);
    list += "</li>\n";
  }
  return "<ul>\n" + list + "</ul>";
}

}  // namespace

std::optional<double> final_figure(const run::RunData& run, data::Subset subset,
                                   std::optional<double> run::Metrics::*measure) {
  if (run.summary) {
    const run::Summary& summary = *run.summary;
    const bool train = subset == data::Subset::train;
    std::optional<double> value;
    if (measure == &run::Metrics::loss) value = train ? summary.train_loss : summary.test_loss;
    if (measure == &run::Metrics::accuracy) value = train ? summary.train_accuracy : summary.test_accuracy;
    if (measure == &run::Metrics::mean_iou && !train) value = summary.test_mean_iou;
    if (value) return value;
  }
  for (auto line = run.metrics.rbegin(); line != run.metrics.rend(); ++line)
    if (line->subset == subset && (*line).*measure) return (*line).*measure;
  return std::nullopt;
}

std::string headline(const run::RunData& run) {
  std::string tiles;
  for (const auto& [name, value] : figures_of(run, run::pace_units({&run, 1})))
    if (!value.empty())
      tiles += text("<div class=\"card tile\"><b>", escape(value), "</b><span>", escape(name), "</span></div>\n");
  if (tiles.empty()) return "<p class=\"card\">Nothing has been measured yet.</p>\n";
  return "<div class=\"tiles\">\n" + tiles + "</div>\n";
}

std::string comparison(std::span<const run::RunData> runs) {
  const std::string units = run::pace_units(runs);
  std::vector<bool> known;
  for (const auto& run : runs) {
    const auto figures = figures_of(run, units);
    known.resize(figures.size());
    for (size_t f = 0; f < figures.size(); ++f) known[f] = known[f] || !figures[f].value.empty();
  }
  std::string heading =
      "<th scope=\"col\">run</th><th scope=\"col\">placement</th><th scope=\"col\" class=\"n\">replicas</th>";
  const auto figures = figures_of(runs[0], units);
  for (size_t f = 0; f < figures.size(); ++f)
    if (known[f]) heading += text("<th scope=\"col\" class=\"n\">", escape(figures[f].name), "</th>");
  heading += "<th scope=\"col\">weights</th><th scope=\"col\">state</th>";
  std::string rows;
  for (size_t r = 0; r < runs.size(); ++r) rows += comparison_row(runs[r], r, units, known);
  return text(
      "<div class=\"card scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Runs compared\" "
      "style=\"margin-top:18px\">\n<table id=\"runs\">\n<thead><tr>",
      heading, "</tr></thead>\n<tbody>\n", rows, "</tbody>\n</table>\n</div>\n");
}

std::string verdict(std::span<const run::RunData> runs) {
  const NamesByHash broken = broken_promises(runs);
  if (!broken.empty())
    return text(
        "<div class=\"card verdict warn\" id=\"verdict\"><strong class=\"warn\">Not the same weights.</strong> <span>",
        "These runs are of one recipe and one fingerprint, which end with the same bits in every placement; what is "
        "not the same stands below.</span>\n",
        list_of(broken), "</div>\n");
  NamesByHash same = names_by_hash(runs);
  std::erase_if(same, [](const auto& item) { return item.second.size() < 2; });
  if (same.empty()) return "";
  size_t count = 0;
  for (const auto& [hash, names] : same) count += names.size();
  return text("<div class=\"card verdict good\" id=\"verdict\"><strong class=\"good\">Identical.</strong> <span>",
              count == runs.size() ? text("All ", count, " runs") : text(count, " of ", runs.size(), " runs"),
              " ended with the same weights, to the last bit: </span>",
              same.size() == 1 ? "<code>" + escape(same.begin()->first) + "</code>" : list_of(same), "</div>\n");
}

std::string differences(std::span<const run::RunData> runs) {
  std::vector<Items> settings, fingerprints;
  for (const auto& run : runs) {
    settings.push_back(settings_of(run.config));
    fingerprints.push_back(run.summary ? run.summary->fingerprint : Items{});
  }
  const std::string rows = difference_rows(runs, settings) + difference_rows(runs, fingerprints);
  if (rows.empty()) return "";
  std::string heading = "<th scope=\"col\">setting</th>";
  for (size_t r = 0; r < runs.size(); ++r)
    heading += text("<th scope=\"col\">", swatch(static_cast<int>(r)), escape(runs[r].name), "</th>");
  return text(
      "<div class=\"card scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Settings that differ\">\n"
      "<table id=\"differences\">\n<thead><tr>",
      heading, "</tr></thead>\n<tbody>\n", rows, "</tbody>\n</table>\n</div>\n");
}

}  // namespace lockstep::report
