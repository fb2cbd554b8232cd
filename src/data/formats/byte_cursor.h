// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::data {

/// The bytes of a file and a place in them. What is wrong is told as "FILE, offset N: ...", N being where that begins
/// which was taken last. Bytes and name live longer.
class ByteCursor {
 public:
  ByteCursor(const char* operation, std::span<const uint8_t> bytes, const std::string& name)
      : operation_(operation), bytes_(bytes), name_(name) {}

  size_t left() const { return bytes_.size() - at_; }
  /// Ends of lines before the last word.
  int64_t lines() const { return lines_; }
  /// Whether no more words follow.
  bool at_end();

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    lockstep::fail(operation_, name_, ", offset ", begin_, ": ", parts...);
  }

  /// Up to the end of the line, without it; none where the file has no such end.
  std::optional<std::string> line();
  /// Leaves out what is left of the line.
  void skip_line();
  /// The next word of text; empty where there is none.
  std::string_view word();
  /// The next word as a number.
  double number();
  /// The next value, byte by byte from the end where `reversed`.
  template <class Value>
  Value take(bool reversed = false) {
    begin_ = at_;
    if (left() < sizeof(Value)) wrong("the file ends before its last row");
    std::array<uint8_t, sizeof(Value)> raw;
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), sizeof(Value), raw.begin());
    at_ += sizeof(Value);
    if (reversed) std::ranges::reverse(raw);
    return std::bit_cast<Value>(raw);
  }

 private:
  const char* operation_;
  std::span<const uint8_t> bytes_;
  const std::string& name_;
  size_t at_ = 0;
  size_t begin_ = 0;  // of what was taken last
  int64_t lines_ = 0;
};

}  // namespace lockstep::data
