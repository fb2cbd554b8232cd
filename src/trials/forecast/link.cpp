// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/trials/forecast.h"

namespace lockstep::trials {
namespace {

using Unit = std::pair<std::string_view, double>;

constexpr std::array<Unit, 4> kRates{{{"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}, {"tbit", 1e12 / 8}}};
constexpr std::array<Unit, 4> kTimes{{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};

/// A number with a unit; none where it is something else.
std::optional<double> read(std::string_view word, const std::array<Unit, 4>& units) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::string_view unit = word.substr(static_cast<size_t>(end - word.data()));
  for (const auto& [name, factor] : units)
    if (unit == name) return number * factor;
  return std::nullopt;
}

std::string_view take_word(std::string_view& rest) {
  const size_t colon = rest.find(':');
  const std::string_view word = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  return word;
}

}  // namespace

std::optional<double> parse_rate(std::string_view text) {
  return read(text, kRates);
}

parallel::LinkCost parse_link(std::string_view text, const std::optional<parallel::LinkCost>& measured) {
  if (text == "measure") return measured.value_or(parallel::LinkCost{});
  parallel::LinkCost link = measured.value_or(parallel::LinkCost{});
  std::string_view rest = text;
  const auto rate = parse_rate(take_word(rest)), latency = read(take_word(rest), kTimes);
  const bool has_message = !rest.empty();
  const auto message = has_message ? read(rest, kTimes) : std::optional(link.message);
  require(rate && *rate > 0 && latency && message, "forecast", "--link is '", text,
          "', expected measure, or a rate and a latency, as 25gbit:5us (kbit, mbit, gbit, tbit; ns, us, ms, s), and "
          "behind another colon what a message more takes");
  link.bytes_per_second = *rate;
  link.latency = *latency;
  link.message = *message;
  return link;
}

}  // namespace lockstep::trials
