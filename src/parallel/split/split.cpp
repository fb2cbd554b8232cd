// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/split.h"

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {
constexpr int64_t kMostParts = 64;
}

std::string to_string(const Split& split) {
  return split.parts == 1 ? "data" : text("p", split.parts);
}

Split parse_split(const std::string& text) {
  Split split;
  if (text == "data") return split;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data() + !text.empty(), end, split.parts);
  require(
      text.starts_with('p') && error == std::errc() && parsed == end && split.parts >= 1 && split.parts <= kMostParts,
      "parse_split", "got '", text, "', expected data, or p2 to p", kMostParts, ": the parts of the network");
  return split;
}

}  // namespace lockstep::parallel
