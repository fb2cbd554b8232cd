// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/table.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "lockstep/run/detail/json.h"

namespace lockstep::report {
namespace {

std::string shown(const Column& column, const Cell& cell) {
  if (const auto* words = std::get_if<std::string>(&cell)) return *words;
  if (const auto* whole = std::get_if<int64_t>(&cell)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&cell)) return column.show ? column.show(*number) : compact(*number, 4);
  return "-";
}

std::string heading_of(const Column& column) {
  return column.unit.empty() ? column.name : column.name + " (" + column.unit + ")";
}

double number_in(const Cell& cell) {
  if (const auto* whole = std::get_if<int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  return std::nan("");
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  require(row.size() == columns_.size(), "Table", "row ", rows_.size(), " has ", row.size(), " cells, expected ",
          columns_.size(), ", one a column");
  rows_.push_back(std::move(row));
}

std::string Table::to_text() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const auto& column : columns_) lines[0].push_back(heading_of(column));
  for (const auto& row : rows_) {
    auto& line = lines.emplace_back();
    for (size_t c = 0; c < row.size(); ++c) line.push_back(shown(columns_[c], row[c]));
  }
  std::string out, rule;
  std::vector<size_t> widths(columns_.size());
  std::vector<bool> words(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    for (const auto& line : lines) widths[c] = std::max(widths[c], columns_of(line[c]));
    words[c] = std::any_of(rows_.begin(), rows_.end(),
                           [&](const auto& row) { return std::holds_alternative<std::string>(row[c]); });
    rule += (c == 0 ? "" : "  ") + std::string(widths[c], '-');
  }
  for (size_t l = 0; l < lines.size(); ++l) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string blanks(widths[c] - columns_of(lines[l][c]), ' ');
      line += (c == 0 ? "" : "  ") + (words[c] ? lines[l][c] + blanks : blanks + lines[l][c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (l == 0) out += rule + "\n";
  }
  return out;
}

std::string Table::to_json() const {
  run::Json list = run::Json::array();
  for (const auto& row : rows_) {
    run::Json object = run::Json::object();
    for (size_t c = 0; c < row.size(); ++c) {
      run::Json& value = object[columns_[c].name];
      if (const auto* words = std::get_if<std::string>(&row[c])) value = *words;
      if (const auto* whole = std::get_if<int64_t>(&row[c])) value = *whole;
      if (const auto* number = std::get_if<double>(&row[c])) value = run::finite(*number);
    }
    list.push_back(std::move(object));
  }
  return run::dump_json(list);
}

size_t Table::column(const std::string& name) const {
  for (size_t c = 0; c < columns_.size(); ++c)
    if (columns_[c].name == name) return c;
  fail("Table", "no column '", name, "', expected one of the ", columns_.size(), " that it was made with");
}

Figure Table::to_figure(const Chart& chart) const {
  const size_t x = column(chart.x), y = column(chart.y);
  Figure figure{chart.title, {.label = heading_of(columns_[x]), .log = chart.log_x}, {.log = chart.log_y}};
  figure.y.label = columns_[y].unit;
  for (const auto& row : rows_) {
    if (std::isnan(number_in(row[x])) || std::isnan(number_in(row[y]))) continue;
    const Cell kind = chart.series.empty() ? Cell(chart.y) : row[column(chart.series)];
    const bool is_name = chart.series.empty() || std::holds_alternative<std::string>(kind);
    const std::string name =
        is_name ? std::get<std::string>(kind) : chart.series + " " + shown(columns_[column(chart.series)], kind);
    auto series =
        std::find_if(figure.series.begin(), figure.series.end(), [&](const auto& s) { return s.name == name; });
    if (series == figure.series.end()) {
      figure.series.push_back({.name = name, .color = static_cast<int>(figure.series.size())});
      series = figure.series.end() - 1;
    }
    series->x.push_back(number_in(row[x]));
    series->y.push_back(number_in(row[y]));
  }
  return figure;
}

}  // namespace lockstep::report
