// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/split.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kMost = 64;

/// The number behind this letter, where `rest` begins with it: taken off. 0: none that makes sense.
int64_t take_number(std::string_view& rest, char letter) {
  if (!rest.starts_with(letter)) return 1;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
  rest.remove_prefix(end - rest.data());
  return error == std::errc() && number <= kMost ? std::max<int64_t>(0, number) : 0;
}

}  // namespace

bool parts_are_processes(const Split& split, int64_t processes, int64_t threads) {
  return processes > 1 && split.parts > 1 && threads < split.parts * split.sharers;
}

std::string to_string(const Split& split) {
  std::string out;
  if (split.parts > 1) out += text("p", split.parts);
  if (split.sharers > 1) out += text("t", split.sharers);
  return out.empty() ? "data" : out;
}

Split parse_split(const std::string& text) {
  if (text == "data") return {};
  std::string_view rest = text;
  Split split{.parts = take_number(rest, 'p')};
  split.sharers = take_number(rest, 't');
  require(!text.empty() && rest.empty() && split.parts > 0 && split.sharers > 0, "parse_split", "got '", text,
          "', expected data, p2 to p", kMost, " (parts of the network), t2 to t", kMost,
          " (devices that share a layer's slices), or both, as p2t2");
  return split;
}

}  // namespace lockstep::parallel
