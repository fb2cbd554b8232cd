// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/report/figure.h"

namespace lockstep::report {

/// What a thing is drawn with: a role of the page, or a series by its number. The theme says which colour that is.
struct Ink {
  enum Role { surface, text, muted, axis, grid, series };
  Role role = text;
  int number = 0;  // of the series
};

struct Color {
  uint8_t red, green, blue;
};

inline constexpr int series_colors = 8;

Color color_of(Ink ink, Theme theme);

/// "#2563c9"
std::string hex(Color color);

/// The name of an ink's class in SVG and CSS: "ink-text", "ink-3".
std::string class_of(Ink ink);

/// CSS rules that give every class its colour, of one theme.
std::string ink_rules(Theme theme);

}  // namespace lockstep::report
