// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/cloud.h"

/// PLY files: tables of points, faces and whatever else, with any properties, as text or binary.
namespace lockstep::data {

enum class PlyType : uint8_t { int8, uint8, int16, uint16, int32, uint32, float32, float64 };
enum class PlyFormat : uint8_t { ascii, little_endian, big_endian };

/// One property of an element: a number for each row, or a list of numbers.
struct PlyColumn {
  std::string name;
  PlyType type = PlyType::float32;
  std::optional<PlyType> count_type{};  ///< of lists: what their lengths are written as
  std::vector<double> values{};         ///< every type of number fits
  std::vector<int64_t> ends{};          ///< of lists: where the one of each row ends in `values`

  bool operator==(const PlyColumn&) const = default;
};

/// A table: "vertex", "face".
struct PlyElement {
  std::string name;
  int64_t rows = 0;
  std::vector<PlyColumn> columns{};

  /// Null where there is none of that name.
  const PlyColumn* find(const std::string& column) const;
  /// The column takes the place of the one of its name, or comes after all others.
  void set(PlyColumn column);
  bool operator==(const PlyElement&) const = default;
};

struct Ply {
  PlyFormat format = PlyFormat::little_endian;
  std::vector<std::string> comments{};
  std::vector<PlyElement> elements{};

  const PlyElement* find(const std::string& element) const;
  PlyElement* find(const std::string& element);
  bool operator==(const Ply&) const = default;
};

/// Throws Error, "FILE, offset N: ...", for what is no PLY file, ends too early, or does not fit its header. No size
/// that a header claims is believed before the bytes are seen to be there.
Ply read_ply(const std::string& file);
Ply parse_ply(std::span<const uint8_t> bytes, const std::string& name);

/// Writes the file aside and renames it. Numbers are rounded to their column's type. Throws Error where columns and
/// rows don't match or a number is out of its type's range, and where the file can't be written.
void write_ply(const std::string& file, const Ply& ply);
std::string to_bytes(const Ply& ply);

/// The element "vertex": x, y, z; red, green, blue, or diffuse_red, ... (bytes become multiples of 1/255, as do wider
/// and float columns of whole numbers up to 255, wider ones up to 65535 multiples of 1/65535; floats up to 1 stay; grey
/// 0.5 where there are none); label where there is one. Where a file of doubles lies farther from 0 than floats can
/// tell its points apart, as maps do, an axis is counted from a whole number near its lowest point. Throws Error naming
/// `name` where x, y and z are not there or not finite, colours are out of these ranges, or a label is no whole number.
Cloud cloud_of(const Ply& ply, const std::string& name);
/// Whether cloud_of finds colours.
bool has_colours(const Ply& ply);
/// The inverse, in little endian: colours as bytes, labels as int32. `channels` must be 3.
Ply ply_of(const Cloud& cloud);

}  // namespace lockstep::data
