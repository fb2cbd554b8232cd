// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "lockstep/data/ply.h"

// What the reader and the writer of PLY files know of its types.
namespace lockstep::data {

struct PlyTypeName {
  PlyType type;
  const char* name;      // the one that is written
  const char* new_name;  // the other one that files have
  size_t bytes;
};
inline constexpr std::array<PlyTypeName, 8> kPlyTypes{{{PlyType::int8, "char", "int8", 1},
                                                       {PlyType::uint8, "uchar", "uint8", 1},
                                                       {PlyType::int16, "short", "int16", 2},
                                                       {PlyType::uint16, "ushort", "uint16", 2},
                                                       {PlyType::int32, "int", "int32", 4},
                                                       {PlyType::uint32, "uint", "uint32", 4},
                                                       {PlyType::float32, "float", "float32", 4},
                                                       {PlyType::float64, "double", "float64", 8}}};

inline const PlyTypeName& facts_of(PlyType type) {
  return kPlyTypes[static_cast<size_t>(type)];
}

/// Calls body with a value of the C++ type.
template <class Body>
auto with_type(PlyType type, const Body& body) {
  switch (type) {
    case PlyType::int8:
      return body(int8_t{});
    case PlyType::uint8:
      return body(uint8_t{});
    case PlyType::int16:
      return body(int16_t{});
    case PlyType::uint16:
      return body(uint16_t{});
    case PlyType::int32:
      return body(int32_t{});
    case PlyType::uint32:
      return body(uint32_t{});
    case PlyType::float32:
      return body(float{});
    default:
      return body(double{});
  }
}

inline constexpr std::array<std::pair<PlyFormat, const char*>, 3> kPlyFormats{
    {{PlyFormat::ascii, "ascii"},
     {PlyFormat::little_endian, "binary_little_endian"},
     {PlyFormat::big_endian, "binary_big_endian"}}};

}  // namespace lockstep::data
