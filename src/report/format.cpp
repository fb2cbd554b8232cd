// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::report {
namespace {

std::string print(double value, std::chars_format format, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 400> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, digits);
  LOCKSTEP_ASSERT(error == std::errc());
  std::string text(buffer.data(), end);
  // "-0.00" is a zero.
  if (text[0] == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

void strip_zeros(std::string& text) {
  if (text.find('.') == std::string::npos) return;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
}

// "1.50e-07" -> "1.5e-7"
std::string scientific(double value, int digits) {
  std::string text = print(value, std::chars_format::scientific, digits - 1);
  const size_t e = text.find('e');
  std::string mantissa = text.substr(0, e);
  strip_zeros(mantissa);
  const bool negative = text[e + 1] == '-';
  const size_t first = std::min(text.find_first_not_of('0', e + 2), text.size() - 1);
  return mantissa + (negative ? "e-" : "e") + text.substr(first);
}

}  // namespace

std::string fixed(double value, int digits) {
  return print(value, std::chars_format::fixed, digits);
}

std::string compact(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return print(value, std::chars_format::fixed, 0);
  const double size = std::abs(value);
  if (size < 1e-4 || size >= 1e7) return scientific(value, digits);
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  std::string text = print(value, std::chars_format::fixed, std::max(0, digits - before));
  strip_zeros(text);
  return text;
}

std::string short_number(double value) {
  constexpr std::array<std::pair<double, const char*>, 4> units{{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [size, unit] : units)
    // 999.6 would be shown as 1000: a thousand already.
    if (std::abs(value) >= size * 0.9995) return compact(value / size, 3) + unit;
  return compact(value, 3);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return compact(seconds * 1e6, 3) + " us";
  if (seconds < 0.9995) return compact(seconds * 1e3, 3) + " ms";
  if (seconds < 99.95) return compact(seconds, 3) + " s";
  return clock(seconds);
}

std::string clock(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const auto two = [](int64_t number) { return text(number < 10 ? "0" : "", number); };
  if (whole < 3600) return text(whole / 60, ":", two(whole % 60));
  return text(whole / 3600, ":", two(whole / 60 % 60), ":", two(whole % 60));
}

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, "\u202f");
  return digits;
}

size_t columns_of(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

}  // namespace lockstep::report
