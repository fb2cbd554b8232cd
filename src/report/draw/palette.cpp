// SPDX-License-Identifier: Apache-2.0
#include "report/draw/palette.h"

#include <array>

#include "lockstep/base/error.h"

namespace lockstep::report {
namespace {

struct Pair {
  Color light, dark;
};

// In the order of Ink::Role.
constexpr std::array<Pair, 5> roles{{
    {{0xff, 0xff, 0xff}, {0x16, 0x1b, 0x22}},
    {{0x1c, 0x24, 0x30}, {0xe8, 0xec, 0xf1}},
    {{0x5a, 0x66, 0x75}, {0x9a, 0xa6, 0xb5}},
    {{0xa5, 0xae, 0xba}, {0x5a, 0x66, 0x77}},
    {{0xe6, 0xe9, 0xed}, {0x2a, 0x32, 0x3d}},
}};

// Neighbours differ in lightness as well as in hue, for eyes that see fewer hues; all stand out against the surface.
constexpr std::array<Pair, series_colors> series{{
    {{0x25, 0x63, 0xc9}, {0x6e, 0xa8, 0xff}},
    {{0xd9, 0x57, 0x0f}, {0xff, 0x9a, 0x5c}},
    {{0x0f, 0x8a, 0x6c}, {0x3f, 0xd0, 0xa8}},
    {{0x9a, 0x3a, 0xa8}, {0xd9, 0x8b, 0xe0}},
    {{0xa8, 0x77, 0x00}, {0xe5, 0xb9, 0x4a}},
    {{0xc7, 0x2c, 0x48}, {0xff, 0x7a, 0x8f}},
    {{0x4a, 0x7a, 0x1e}, {0x9c, 0xcc, 0x65}},
    {{0x5b, 0x64, 0x72}, {0xaa, 0xb4, 0xc2}},
}};

constexpr std::array<const char*, 5> role_names{"surface", "text", "muted", "axis", "grid"};

}  // namespace

Color color_of(Ink ink, Theme theme) {
  const Pair& pair = ink.role == Ink::series ? series[ink.number % series_colors] : roles[ink.role];
  return theme == Theme::light ? pair.light : pair.dark;
}

std::string hex(Color color) {
  constexpr const char* digits = "0123456789abcdef";
  std::string out = "#";
  for (const uint8_t part : {color.red, color.green, color.blue}) {
    out += digits[part >> 4];
    out += digits[part & 15];
  }
  return out;
}

std::string class_of(Ink ink) {
  return ink.role == Ink::series ? text("ink-", ink.number % series_colors) : text("ink-", role_names[ink.role]);
}

std::string ink_rules(Theme theme) {
  std::string rules;
  const auto rule = [&](Ink ink) { rules += text(".", class_of(ink), "{color:", hex(color_of(ink, theme)), "}"); };
  for (int role = 0; role < Ink::series; ++role) rule({static_cast<Ink::Role>(role)});
  for (int number = 0; number < series_colors; ++number) rule({Ink::series, number});
  return rules;
}

}  // namespace lockstep::report
