// SPDX-License-Identifier: Apache-2.0
#include "run/toml.h"

#include <cctype>
#include <charconv>
#include <sstream>
#include <string_view>

#include "lockstep/base/detail/digits.h"
#include "lockstep/base/error.h"

namespace lockstep::run {
namespace {

constexpr size_t kShown = 60;  // characters of a line that a message repeats

// One line of a file, read from left to right.
class Line {
 public:
  Line(std::string_view content, std::string where) : rest_(content), where_(std::move(where)) {}

  bool at_end() {
    skip_space();
    return rest_.empty() || rest_[0] == '#';
  }
  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Letters, digits and what numbers and names are made of.
  std::string word() {
    skip_space();
    size_t length = 0;
    while (length < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 ||
                                     std::string_view("_-+.").find(rest_[length]) != std::string_view::npos))
      ++length;
    check(length > 0, "expected NAME = VALUE");
    const std::string out(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return out;
  }
  std::string value() {
    if (take('"')) return basic_string();
    if (take('\'')) return literal_string();
    return word();
  }
  void check(bool holds, const char* what) const {
    require(holds, "config", where_, ": ", what, rest_.empty() ? "" : text(" at '", rest_.substr(0, kShown), "'"));
  }
  const std::string& where() const { return where_; }

 private:
  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0) rest_.remove_prefix(1);
  }
  std::string literal_string() {
    const size_t end = rest_.find('\'');
    check(end != std::string_view::npos, "expected a closing '");
    const std::string out(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return out;
  }
  std::string basic_string() {
    std::string out;
    for (;;) {
      check(!rest_.empty(), "expected a closing \"");
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      check(!rest_.empty(), "expected a character after \\");
      const char escaped = rest_[0];
      rest_.remove_prefix(1);
      check(std::string_view("\"\\nt").find(escaped) != std::string_view::npos, "expected one of \\\" \\\\ \\n \\t");
      out += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
    }
  }

  std::string_view rest_;
  std::string where_;
};

TomlItem parse(Line& line) {
  TomlItem item;
  item.where = line.where();
  item.name = line.value();
  line.check(line.take('='), "expected = after a name");
  item.is_array = line.take('[');
  if (!item.is_array) {
    item.values.push_back(line.value());
  } else {
    while (!line.take(']')) {
      item.values.push_back(line.value());
      if (!line.take(',')) {
        line.check(line.take(']'), "expected , or ] in an array");
        break;
      }
    }
  }
  line.check(line.at_end(), "expected the end of the line");
  return item;
}

template <class T>
T number(const TomlItem& item, const std::string& word, const char* kind) {
  T value{};
  const char* end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data() + (word.starts_with('+') ? 1 : 0), end, value);
  require(error == std::errc() && at == end, "config", item.where, ": ", item.name, " is '", word, "', expected ",
          kind);
  return value;
}

const std::string& single(const TomlItem& item) {
  require(!item.is_array, "config", item.where, ": ", item.name, " is an array, expected one value");
  return item.values[0];
}

template <class T>
std::string array_of(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& value : values) out += (out.size() > 1 ? ", " : "") + toml_of(value);
  return out + "]";
}

}  // namespace

std::vector<TomlItem> parse_toml(const std::string& content, const std::string& where) {
  std::vector<TomlItem> items;
  std::istringstream in(content);
  int number = 0;
  for (std::string row; std::getline(in, row);) {
    Line line(row, text(where, ", line ", ++number));
    if (!line.at_end()) items.push_back(parse(line));
  }
  return items;
}

void assign(const TomlItem& item, std::string& value) {
  value = single(item);
}
void assign(const TomlItem& item, int64_t& value) {
  value = number<int64_t>(item, single(item), "a whole number");
}
void assign(const TomlItem& item, uint64_t& value) {
  value = number<uint64_t>(item, single(item), "a whole number, 0 or more");
}
void assign(const TomlItem& item, double& value) {
  value = number<double>(item, single(item), "a number");
}
void assign(const TomlItem& item, bool& value) {
  const std::string& word = single(item);
  require(word == "true" || word == "false", "config", item.where, ": ", item.name, " is '", word,
          "', expected true or false");
  value = word == "true";
}
void assign(const TomlItem& item, std::vector<std::string>& value) {
  value = item.values;
}
void assign(const TomlItem& item, std::vector<double>& value) {
  value.clear();
  for (const auto& word : item.values) value.push_back(number<double>(item, word, "numbers"));
}
void assign(const TomlItem& item, std::vector<int64_t>& value) {
  value.clear();
  for (const auto& word : item.values) value.push_back(number<int64_t>(item, word, "whole numbers"));
}

std::string toml_of(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return out + '"';
}
std::string toml_of(int64_t value) {
  return std::to_string(value);
}
std::string toml_of(uint64_t value) {
  return std::to_string(value);
}
std::string toml_of(double value) {
  return digits_of(value);
}
std::string toml_of(bool value) {
  return value ? "true" : "false";
}
std::string toml_of(const std::vector<std::string>& value) {
  return array_of(value);
}
std::string toml_of(const std::vector<double>& value) {
  return array_of(value);
}
std::string toml_of(const std::vector<int64_t>& value) {
  return array_of(value);
}

}  // namespace lockstep::run
