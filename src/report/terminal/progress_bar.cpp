// SPDX-License-Identifier: Apache-2.0
// What a bar says, and what it leaves out where a terminal is narrow.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "report/terminal/progress_parts.h"

namespace lockstep::report {
namespace {

constexpr int shortest_bar = 8, longest_bar = 32;

// 0 to 1: of the epoch where it is known, else of the run.
std::optional<double> share_of(const Position& position) {
  const auto [done, all] = part_of_epoch(position);
  if (all <= 0) return std::nullopt;
  return std::clamp(static_cast<double>(done) / static_cast<double>(all), 0., 1.);
}

std::string bar_of(double share, int width, bool unicode) {
  const int full = static_cast<int>(std::floor(share * width + 1e-9));
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? (unicode ? "━" : "#") : (unicode ? "─" : "-");
  return bar;
}

}  // namespace

std::pair<int64_t, int64_t> part_of_epoch(const Position& position) {
  if (position.steps_per_epoch <= 0) return {position.step, position.steps};
  // The end of an epoch is shown as its end, not as the start of the next.
  const int64_t done = position.step <= 0 ? 0 : (position.step - 1) % position.steps_per_epoch + 1;
  return {done, position.steps_per_epoch};
}

std::string epoch_of(const Position& position) {
  if (position.steps_per_epoch <= 0) return "";
  const int64_t epoch = position.step <= 0 ? 1 : (position.step - 1) / position.steps_per_epoch + 1;
  std::string words = text("epoch ", epoch);
  if (position.steps > 0)
    words += text("/", (position.steps + position.steps_per_epoch - 1) / position.steps_per_epoch);
  return words;
}

std::string step_of(const Position& position) {
  const auto [done, all] = part_of_epoch(position);
  return all > 0 ? text(done, "/", all) : text(done);
}

std::string figure_of(const char* name, const std::optional<double>& value) {
  return value ? text(name, " ", fixed(*value, 3)) : "";
}

std::string progress_bar(const Position& position, std::optional<double> examples_per_second,
                         std::optional<double> seconds_left, std::string_view unit, int width, bool unicode) {
  // In the order of the line, with how soon each part is given up: the highest goes first.
  struct Part {
    std::string words;
    int rank;
  };
  std::array<Part, 7> parts{{
      {epoch_of(position), 1},
      {"", 4},  // the bar
      {step_of(position), 0},
      {figure_of("loss", position.loss), 2},
      {figure_of("accuracy", position.accuracy), 3},
      {examples_per_second ? text(short_number(*examples_per_second), " ", unit, "/s") : "", 6},
      {seconds_left ? clock(*seconds_left) + " left" : "", 5},
  }};
  const auto share = share_of(position);
  if (share) parts[1].words = bar_of(*share, shortest_bar, unicode);
  const auto used = [&] {
    size_t sum = 0;
    for (const auto& part : parts)
      if (!part.words.empty()) sum += columns_of(part.words) + (sum > 0 ? 2 : 0);
    return static_cast<int>(sum);
  };
  for (int rank = 6; rank >= 0 && used() > width; --rank)
    for (auto& part : parts)
      if (part.rank == rank) part.words.clear();
  if (!parts[1].words.empty())
    parts[1].words = bar_of(*share, std::min(longest_bar, shortest_bar + width - used()), unicode);
  std::string line;
  for (const auto& part : parts)
    if (!part.words.empty()) line += (line.empty() ? "" : "  ") + part.words;
  return line;
}

}  // namespace lockstep::report
