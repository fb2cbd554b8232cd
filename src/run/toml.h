// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::run {

/// One `name = value` of a file of options: a word, a string, or the words and strings of an array.
struct TomlItem {
  std::string name;
  std::vector<std::string> values;
  bool is_array = false;
  std::string where;  // "run.toml, line 3"
};

/// The part of TOML that options need: no tables, no dates, no nesting. Throws Error with file and line.
std::vector<TomlItem> parse_toml(const std::string& content, const std::string& where);

/// The value of an item as this type. Throws Error, naming the item, where it is of another.
void assign(const TomlItem& item, std::string& value);
void assign(const TomlItem& item, int64_t& value);
void assign(const TomlItem& item, uint64_t& value);
void assign(const TomlItem& item, double& value);
void assign(const TomlItem& item, bool& value);
void assign(const TomlItem& item, std::vector<std::string>& value);
void assign(const TomlItem& item, std::vector<double>& value);
void assign(const TomlItem& item, std::vector<int64_t>& value);

/// A value as TOML; numbers read back as they were.
std::string toml_of(const std::string& value);
std::string toml_of(int64_t value);
std::string toml_of(uint64_t value);
std::string toml_of(double value);
std::string toml_of(bool value);
std::string toml_of(const std::vector<std::string>& value);
std::string toml_of(const std::vector<double>& value);
std::string toml_of(const std::vector<int64_t>& value);

}  // namespace lockstep::run
