// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/report/figure.h"

/// Rows of results as a person, a program and a picture have them: `lockstep speedup` and `lockstep sweep` print one.
namespace lockstep::report {

/// Nothing (shown as "-", null in JSON), words, or a number.
using Cell = std::variant<std::monostate, std::string, int64_t, double>;

struct Column {
  std::string name;       // "time", also the key in JSON
  std::string unit = {};  // "ms": stands in the heading
  /// How a number that is not whole is shown; with four significant digits where it is empty.
  std::function<std::string(double)> show = {};
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Throws Error when the row has not one cell a column.
  void add(std::vector<Cell> row);

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }

  /// A heading, a rule, and a line a row. Columns of numbers stand right, words left; no blanks at a line's end.
  std::string to_text() const;

  /// A list of objects, a row each: [{"devices": 1, "time": 3.2}, ...]. What is no number is null.
  std::string to_json() const;

  struct Chart {
    std::string title;
    std::string x;  // names of columns with numbers
    std::string y;
    std::string series = {};  // rows with the same cell there are one line; empty: all rows are
    bool log_x = false;
    bool log_y = false;
  };
  /// Rows whose x or y is no number are left out. Throws Error for a column that is not there.
  Figure to_figure(const Chart& chart) const;

 private:
  size_t column(const std::string& name) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace lockstep::report
