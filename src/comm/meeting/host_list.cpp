// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting/host_list.h"

#include <charconv>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr size_t max_hosts = 1 << 16;  // a range such as [0-999999999] is a slip, not a cluster

std::optional<int64_t> parse_digits(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// Cuts at the commas that stand outside of brackets.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

struct Expansion {
  const char* operation;
  const std::string& variable;
  const std::string& text;

  [[noreturn]] void reject(const char* expected) const {
    fail(operation, variable, " is '", text, "', expected ", expected);
  }

  // What stands between brackets: "01-03,7". Numbers keep the width of the range's first.
  std::vector<std::string> numbers(const std::string& ranges) const {
    std::vector<std::string> found;
    for (const auto& range : split(ranges)) {
      const size_t dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const auto low = parse_digits(first);
      const auto high = dash == std::string::npos ? low : parse_digits(range.substr(dash + 1));
      if (!low || !high || *high < *low || *high - *low >= static_cast<int64_t>(max_hosts))
        reject("numbers and rising ranges within [], as in gpu[01-03,7]");
      for (int64_t number = *low; number <= *high; ++number) {
        const std::string digits = std::to_string(number);
        found.push_back(std::string(first.size() > digits.size() ? first.size() - digits.size() : 0, '0') + digits);
      }
    }
    return found;
  }

  // One name with its brackets, from the left: what is before the first one, each of its numbers, all of the rest.
  void expand(const std::string& before, const std::string& rest, std::vector<std::string>& hosts) const {
    const size_t open = rest.find('[');
    const size_t close = rest.find(']');
    if (open == std::string::npos && close == std::string::npos) {
      if (before.empty() && rest.empty()) reject("host names between the commas");
      if (hosts.size() == max_hosts) reject("no more than 65536 hosts");
      hosts.push_back(before + rest);
      return;
    }
    if (open == std::string::npos || close == std::string::npos || close < open) reject("[ and ] in pairs");
    const std::string left = before + rest.substr(0, open);
    for (const auto& number : numbers(rest.substr(open + 1, close - open - 1)))
      expand(left + number, rest.substr(close + 1), hosts);
  }
};

}  // namespace

std::vector<std::string> expand_host_list(const char* operation, const std::string& variable, const std::string& text) {
  const Expansion expansion{operation, variable, text};
  std::vector<std::string> hosts;
  for (const auto& part : split(text)) expansion.expand("", part, hosts);
  return hosts;
}

std::vector<int> expand_counts(const char* operation, const std::string& variable, const std::string& text) {
  const Expansion expansion{operation, variable, text};
  std::vector<int> counts;
  for (const auto& part : split(text)) {
    const size_t open = part.find("(x");
    const auto count = parse_digits(part.substr(0, open));
    std::optional<int64_t> times = 1;
    if (open != std::string::npos) {
      if (part.back() != ')') expansion.reject("counts such as 4(x2),3");
      times = parse_digits(part.substr(open + 2, part.size() - open - 3));
    }
    if (!count || !times || *count < 1 || *times < 1 || *count > static_cast<int64_t>(max_hosts) ||
        counts.size() + *times > max_hosts)
      expansion.reject("counts such as 4(x2),3");
    counts.insert(counts.end(), *times, static_cast<int>(*count));
  }
  return counts;
}

}  // namespace lockstep::comm
