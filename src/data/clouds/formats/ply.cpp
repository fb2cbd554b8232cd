// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/ply.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "data/clouds/formats/ply_types.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void write_header(const Ply& ply, std::string& out) {
  const auto format = std::ranges::find(kPlyFormats, ply.format, [](const auto& one) { return one.first; });
  out += text("ply\nformat ", format->second, " 1.0\n");
  for (const std::string& comment : ply.comments) out += text("comment ", comment, "\n");
  for (const PlyElement& element : ply.elements) {
    out += text("element ", element.name, " ", element.rows, "\n");
    for (const PlyColumn& column : element.columns) {
      const std::string list = column.count_type ? text("list ", facts_of(*column.count_type).name, " ") : "";
      out += text("property ", list, facts_of(column.type).name, " ", column.name, "\n");
    }
  }
  out += "end_header\n";
}

void write_value(double value, PlyType type, PlyFormat format, std::string& out) {
  with_type(type, [&]<class Value>(Value) {
    if constexpr (std::is_integral_v<Value>) {
      value = std::round(value);
      require(value >= std::numeric_limits<Value>::min() && value <= std::numeric_limits<Value>::max(), "write_ply",
              value, " is out of the range of ", facts_of(type).name);
    }
    const auto rounded = static_cast<Value>(value);
    if (format == PlyFormat::ascii) {
      char digits[64];
      out.append(digits, std::to_chars(digits, digits + sizeof digits, rounded).ptr).push_back(' ');
    } else {
      auto raw = std::bit_cast<std::array<char, sizeof(Value)>>(rounded);
      if (format == PlyFormat::big_endian) std::ranges::reverse(raw);
      out.append(raw.data(), raw.size());
    }
  });
}

void check(const PlyElement& element) {
  for (const PlyColumn& column : element.columns) {
    const auto rows = static_cast<int64_t>(column.count_type ? column.ends.size() : column.values.size());
    require(rows == element.rows, "write_ply", "'", column.name, "' has ", rows, " rows, expected ", element.rows,
            ", those of element ", element.name);
    const bool in_order = std::ranges::is_sorted(column.ends) &&
                          (column.ends.empty() || (column.ends.front() >= 0 &&
                                                   column.ends.back() == static_cast<int64_t>(column.values.size())));
    require(in_order, "write_ply", "the ends of the lists of '", column.name, "' don't fit its values");
  }
}

void write_rows(const PlyElement& element, PlyFormat format, std::string& out) {
  for (int64_t row = 0; row < element.rows; ++row) {
    for (const PlyColumn& column : element.columns) {
      int64_t begin = row, end = row + 1;
      if (column.count_type) {
        begin = row == 0 ? 0 : column.ends[row - 1];
        end = column.ends[row];
        write_value(static_cast<double>(end - begin), *column.count_type, format, out);
      }
      for (int64_t i = begin; i < end; ++i) write_value(column.values[i], column.type, format, out);
    }
    if (format == PlyFormat::ascii) out.back() = '\n';
  }
}

using Columns = std::array<const PlyColumn*, 3>;

/// Null for those that are not there.
Columns columns_of(const PlyElement& vertex, const std::array<const char*, 3>& names) {
  Columns found{};
  for (size_t axis = 0; axis < 3; ++axis) {
    found[axis] = vertex.find(names[axis]);
    if (found[axis] != nullptr && found[axis]->count_type) found[axis] = nullptr;
  }
  return found;
}

bool is_empty(const Columns& columns) {
  return std::ranges::count(columns, nullptr) == 3;
}

Columns colours_of(const PlyElement& vertex) {
  const Columns usual = columns_of(vertex, {"red", "green", "blue"});
  return is_empty(usual) ? columns_of(vertex, {"diffuse_red", "diffuse_green", "diffuse_blue"}) : usual;
}

/// What to count an axis from. Up to 4 km from 0 a float is right to a quarter of a millimetre.
double origin_of(const PlyColumn& axis, const std::string& name) {
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < axis.values.size(); ++i) {
    require(std::isfinite(axis.values[i]), "cloud_of", name, ": vertex ", i, " has the ", axis.name, " ",
            axis.values[i], ", expected a finite one: leave out the points that were not measured");
    lowest = std::min(lowest, axis.values[i]);
  }
  const bool far = axis.type == PlyType::float64 && std::isfinite(lowest) && std::abs(lowest) > 4096;
  return far ? std::floor(lowest) : 0;
}

/// What 1 is in a file's colours: 255 of bytes, and of wider numbers too where none is above it; else 65535. Floats are
/// parts of 1, unless they hold what bytes would.
double unit_of(const Columns& colours, const std::string& name) {
  double least = 0, most = 0;
  bool floats = false, whole = true;
  for (const PlyColumn* colour : colours) {
    if (colour == nullptr) continue;
    floats = floats || colour->type >= PlyType::float32;
    for (const double value : colour->values) {
      if (std::isnan(value)) least = value;
      least = std::min(least, value);
      most = std::max(most, value);
      whole = whole && value == std::trunc(value);
    }
  }
  if (floats && most <= 1 && least >= 0) return 1;
  const double unit = floats || most <= 255 ? 255 : 65535;
  require(least >= 0 && most <= unit && whole, "cloud_of", name, " has colours from ", least, " to ", most,
          floats ? ", expected floats of 0 to 1, or whole numbers of 0 to 255" : ", expected 0 to 255, or to 65535");
  return unit;
}

std::vector<int64_t> labels_of(const PlyColumn& column, const std::string& name) {
  constexpr double most = 1LL << 53;  // beyond it doubles are not all whole numbers
  for (size_t i = 0; i < column.values.size(); ++i) {
    const double label = column.values[i];
    require(std::abs(label) <= most && label == std::trunc(label), "cloud_of", name, ": vertex ", i, " has the label ",
            label, ", expected a whole number");
  }
  return {column.values.begin(), column.values.end()};
}

}  // namespace

const PlyColumn* PlyElement::find(const std::string& column) const {
  const auto found = std::ranges::find(columns, column, &PlyColumn::name);
  return found == columns.end() ? nullptr : &*found;
}

void PlyElement::set(PlyColumn column) {
  const auto found = std::ranges::find(columns, column.name, &PlyColumn::name);
  if (found == columns.end())
    columns.push_back(std::move(column));
  else
    *found = std::move(column);
}

const PlyElement* Ply::find(const std::string& element) const {
  const auto found = std::ranges::find(elements, element, &PlyElement::name);
  return found == elements.end() ? nullptr : &*found;
}

PlyElement* Ply::find(const std::string& element) {
  return const_cast<PlyElement*>(std::as_const(*this).find(element));
}

std::string to_bytes(const Ply& ply) {
  std::string out;
  write_header(ply, out);
  for (const PlyElement& element : ply.elements) {
    check(element);
    write_rows(element, ply.format, out);
  }
  return out;
}

void write_ply(const std::string& file, const Ply& ply) {
  write_file(file, to_bytes(ply), "write_ply");
}

Cloud cloud_of(const Ply& ply, const std::string& name) {
  const PlyElement* vertex = ply.find("vertex");
  require(vertex != nullptr, "cloud_of", name, " has no element vertex, expected points");
  const Columns places = columns_of(*vertex, {"x", "y", "z"}), colours = colours_of(*vertex);
  require(std::ranges::count(places, nullptr) == 0, "cloud_of", name, " has vertices without x, y and z");
  const PlyColumn* label = vertex->find("label");
  Cloud cloud;
  cloud.points.resize(vertex->rows);
  cloud.features.resize(3 * vertex->rows, 0.5F);
  const double unit = unit_of(colours, name);
  for (size_t axis = 0; axis < 3; ++axis) {
    const double origin = origin_of(*places[axis], name);
    for (int64_t i = 0; i < vertex->rows; ++i) {
      cloud.points[i][axis] = static_cast<float>(places[axis]->values[i] - origin);
      if (colours[axis] != nullptr)
        cloud.features[3 * i + static_cast<int64_t>(axis)] = static_cast<float>(colours[axis]->values[i] / unit);
    }
  }
  if (label != nullptr && !label->count_type) cloud.labels = labels_of(*label, name);
  return cloud;
}

bool has_colours(const Ply& ply) {
  const PlyElement* vertex = ply.find("vertex");
  return vertex != nullptr && !is_empty(colours_of(*vertex));
}

Ply ply_of(const Cloud& cloud) {
  require(cloud.channels == 3, "ply_of", "points have ", cloud.channels, " features, expected colours: 3");
  PlyElement vertex{.name = "vertex", .rows = cloud.size()};
  const std::array<const char*, 3> places{"x", "y", "z"}, colours{"red", "green", "blue"};
  for (size_t axis = 0; axis < 3; ++axis) {
    PlyColumn column{.name = places[axis]};
    for (const Point& point : cloud.points) column.values.push_back(point[axis]);
    vertex.columns.push_back(std::move(column));
  }
  for (size_t c = 0; c < 3; ++c) {
    PlyColumn column{.name = colours[c], .type = PlyType::uint8};
    for (size_t i = c; i < cloud.features.size(); i += 3)
      column.values.push_back(std::round(255.0 * std::clamp(cloud.features[i], 0.0F, 1.0F)));
    vertex.columns.push_back(std::move(column));
  }
  if (!cloud.labels.empty())
    vertex.columns.push_back(
        {.name = "label", .type = PlyType::int32, .values = {cloud.labels.begin(), cloud.labels.end()}});
  Ply ply;
  ply.elements.push_back(std::move(vertex));
  return ply;
}

}  // namespace lockstep::data
