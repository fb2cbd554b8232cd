// SPDX-License-Identifier: Apache-2.0
#include "data/formats/byte_cursor.h"

#include <charconv>

namespace lockstep::data {
namespace {

bool is_space(uint8_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

std::optional<std::string> ByteCursor::line() {
  begin_ = at_;
  const auto rest = bytes_.subspan(at_);
  const auto end = std::ranges::find(rest, uint8_t{'\n'});
  if (end == rest.end()) return std::nullopt;
  std::string out(rest.begin(), end);
  at_ += out.size() + 1;
  while (out.ends_with('\r')) out.pop_back();
  return out;
}

void ByteCursor::skip_line() {
  while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
}

bool ByteCursor::at_end() {
  while (at_ < bytes_.size() && is_space(bytes_[at_])) lines_ += bytes_[at_++] == '\n' ? 1 : 0;
  return at_ == bytes_.size();
}

std::string_view ByteCursor::word() {
  at_end();  // skips space
  begin_ = at_;
  while (at_ < bytes_.size() && !is_space(bytes_[at_])) ++at_;
  return {reinterpret_cast<const char*>(bytes_.data()) + begin_, at_ - begin_};
}

double ByteCursor::number() {
  std::string_view digits = word();
  if (digits.empty()) wrong("the file ends before its last row");
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) wrong("'", digits.substr(0, 40), "' is no number");
  return value;
}

}  // namespace lockstep::data
