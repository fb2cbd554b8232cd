// SPDX-License-Identifier: Apache-2.0
// A header of lines, then the rows of each element, one after another: bytes, or words of text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "data/clouds/formats/ply_types.h"
#include "data/formats/byte_cursor.h"
#include "lockstep/base/detail/file.h"

namespace lockstep::data {
namespace {

std::string header_line(ByteCursor& at) {
  auto line = at.line();
  if (!line) at.wrong("the header ends without end_header");
  return *std::move(line);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

PlyType type_named(const std::string& name, const ByteCursor& at) {
  for (const PlyTypeName& one : kPlyTypes)
    if (name == one.name || name == one.new_name) return one.type;
  at.wrong("'", name, "' is no type, expected char, uchar, short, ushort, int, uint, float or double");
}

PlyFormat format_of(const std::vector<std::string>& words, const ByteCursor& at) {
  for (const auto& [format, name] : kPlyFormats)
    if (words.size() == 3 && words[1] == name && words[2] == "1.0") return format;
  at.wrong("expected 'format ascii 1.0', 'format binary_little_endian 1.0' or 'format binary_big_endian 1.0'");
}

PlyElement element_of(const std::vector<std::string>& words, const ByteCursor& at) {
  PlyElement element;
  if (words.size() == 3) {
    element.name = words[1];
    const auto* end = words[2].data() + words[2].size();
    const auto [stop, error] = std::from_chars(words[2].data(), end, element.rows);
    if (error == std::errc() && stop == end && element.rows >= 0) return element;
  }
  at.wrong("expected 'element NAME ROWS'");
}

PlyColumn column_of(const std::vector<std::string>& words, const ByteCursor& at) {
  PlyColumn column;
  const bool list = words.size() == 5 && words[1] == "list";
  if (!list && words.size() != 3) at.wrong("expected 'property TYPE NAME' or 'property list TYPE TYPE NAME'");
  column.name = words.back();
  column.type = type_named(words[words.size() - 2], at);
  if (!list) return column;
  column.count_type = type_named(words[2], at);
  if (*column.count_type >= PlyType::float32)
    at.wrong("lengths of lists are of type ", words[2], ", expected integers");
  return column;
}

Ply read_header(ByteCursor& at) {
  if (at.left() < 4 || header_line(at) != "ply") at.wrong("this is no PLY file, expected it to begin with 'ply'");
  Ply ply;
  bool has_format = false;
  for (;;) {
    const std::string line = header_line(at);
    const auto words = words_of(line);
    if (words.empty()) continue;
    const std::string& key = words[0];
    if (key == "end_header") break;
    if (key == "comment" || key == "obj_info") {
      const size_t begin = line.find(key) + key.size() + 1;  // whatever space stands before it
      ply.comments.push_back(begin < line.size() ? line.substr(begin) : "");
    } else if (key == "format") {
      ply.format = format_of(words, at);
      has_format = true;
    } else if (key == "element") {
      ply.elements.push_back(element_of(words, at));
    } else if (key == "property") {
      if (ply.elements.empty()) at.wrong("a property stands before any element");
      auto& columns = ply.elements.back().columns;
      columns.push_back(column_of(words, at));
      if (std::ranges::count(columns, columns.back().name, &PlyColumn::name) > 1)
        at.wrong("there are two properties '", columns.back().name, "'");
    } else {
      at.wrong("'", key.substr(0, 40), "' is unknown, expected format, element, property, comment or end_header");
    }
  }
  if (!has_format) at.wrong("the header has no format");
  return ply;
}

/// A word as a value of this type, or the bytes of one.
double read_value(ByteCursor& at, PlyType type, PlyFormat format) {
  return with_type(type, [&]<class Value>(Value) -> double {
    if (format != PlyFormat::ascii) return static_cast<double>(at.take<Value>(format == PlyFormat::big_endian));
    const double value = at.number();
    if constexpr (std::is_integral_v<Value>) {
      const bool fits = value >= std::numeric_limits<Value>::min() && value <= std::numeric_limits<Value>::max();
      if (!fits || value != std::trunc(value)) at.wrong(value, " is no ", facts_of(type).name);
      return value;
    } else {
      return static_cast<double>(static_cast<Value>(value));
    }
  });
}

void read_cell(ByteCursor& at, PlyColumn& column, PlyFormat format) {
  double length = 1;
  if (column.count_type) {
    length = read_value(at, *column.count_type, format);
    const size_t smallest = format == PlyFormat::ascii ? 2 : facts_of(column.type).bytes;  // a digit and a space
    if (length < 0 || length * static_cast<double>(smallest) > static_cast<double>(at.left()) + 1)
      at.wrong("a list of '", column.name, "' has ", length, " values, and ", at.left(), " bytes are left");
  }
  for (int64_t i = 0; i < static_cast<int64_t>(length); ++i)
    column.values.push_back(read_value(at, column.type, format));
  if (column.count_type) column.ends.push_back(static_cast<int64_t>(column.values.size()));
}

/// The least that a row can take.
size_t smallest_row(const PlyElement& element, PlyFormat format) {
  size_t bytes = 0;
  for (const PlyColumn& column : element.columns)
    bytes += format == PlyFormat::ascii ? 2 : facts_of(column.count_type.value_or(column.type)).bytes;
  return bytes;
}

void read_rows(ByteCursor& at, PlyElement& element, PlyFormat format) {
  const size_t row = smallest_row(element, format);
  if (row == 0 && element.rows > 0) at.wrong("element ", element.name, " has ", element.rows, " rows of nothing");
  if (row > 0 && static_cast<uint64_t>(element.rows) > (at.left() + 1) / row)
    at.wrong("element ", element.name, " has ", element.rows, " rows, and ", at.left(), " bytes are left for them");
  for (PlyColumn& column : element.columns) column.values.reserve(element.rows);
  for (int64_t i = 0; i < element.rows; ++i)
    for (PlyColumn& column : element.columns) read_cell(at, column, format);
}

}  // namespace

Ply parse_ply(std::span<const uint8_t> bytes, const std::string& name) {
  ByteCursor at("read_ply", bytes, name);
  Ply ply = read_header(at);
  for (PlyElement& element : ply.elements) read_rows(at, element, ply.format);
  return ply;
}

Ply read_ply(const std::string& file) {
  return parse_ply(read_bytes(file, "read_ply"), file);
}

}  // namespace lockstep::data
