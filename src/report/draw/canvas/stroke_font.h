// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "report/draw/canvas/canvas.h"

/// A font of lines and arcs, drawn for this project: what pictures are labelled with where no font is installed.
namespace lockstep::report {

/// A glyph's lines. The base line is y = 0, capitals are 10 high, y points up; it spans x from 0 to width.
struct Glyph {
  double width = 0;
  std::vector<std::vector<Point>> strokes = {};
};

inline constexpr double glyph_gap = 2.8;        // between neighbours
inline constexpr double em_units = 10 / 0.715;  // height of a capital in a font's size

/// One of ASCII's printable characters; for any other a box.
const Glyph& glyph(char32_t character);

/// The characters of a UTF-8 text; bytes that are none become U+FFFD.
std::vector<char32_t> characters_of(std::string_view utf8);

}  // namespace lockstep::report
