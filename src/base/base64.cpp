// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/base64.h"

#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](size_t i) -> uint32_t {
      return at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0;
    };
    const uint32_t group = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t i = 0; i < 4; ++i) out += at + i <= bytes.size() ? digits[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::string from_base64(std::string_view text, const std::string& where) {
  require(text.size() % 4 == 0, "from_base64", where, ": ", text.size(), " characters, expected a multiple of 4");
  std::string_view digit = text;
  while (digit.size() + 2 > text.size() && !digit.empty() && digit.back() == '=') digit.remove_suffix(1);
  std::string out;
  out.reserve(digit.size() * 3 / 4);
  uint32_t group = 0;
  for (size_t i = 0; i < digit.size(); ++i) {
    const size_t value = digits.find(digit[i]);
    require(value != std::string_view::npos, "from_base64", where, ": character ", i, " is no digit of base64");
    group = group << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 0) out += static_cast<char>(group >> (6 - 2 * (i % 4)) & 255);
  }
  return out;
}

}  // namespace lockstep
