// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"
#include "parallel/split/cut.h"
#include "parallel/split/pipeline.h"

namespace lockstep::parallel {
namespace {

double seconds_with(const StageCost& stage, int64_t sharers, double a_meeting) {
  if (sharers == 1) return stage.seconds;
  return stage.seconds - stage.sliced_seconds + stage.sliced_seconds / static_cast<double>(sharers) +
         a_meeting * static_cast<double>(stage.sliced_layers);
}

// Parts are busy one behind another; the busiest decides, and the others' first and last turns come on top. A part has
// as many replicas in flight as there are devices from it on.
SplitForecast forecast(const std::vector<StageCost>& stages, const SplitQuestion& question, const Split& split) {
  std::vector<double> costs;
  for (const StageCost& stage : stages) costs.push_back(seconds_with(stage, split.sharers, question.seconds_a_meeting));
  const auto devices = devices_of_parts(std::max<int64_t>(1, question.devices / split.sharers), split.parts);
  const auto first = cut_evenly(costs, devices);
  SplitForecast out{.split = split};
  double all = 0, busiest = 0, of_busiest = 0;
  int64_t after = 0;
  for (size_t part = first.size(); part-- > 0;) {
    const size_t end = part + 1 < first.size() ? first[part + 1] : stages.size();
    double cost = 0;
    int64_t kept = 0;
    for (size_t stage = first[part]; stage < end; ++stage) {
      cost += costs[stage];
      kept += stages[stage].kept_bytes;
    }
    after += devices[part];
    out.bytes += std::min(question.replicas, after) * kept;
    const int64_t turns = (question.replicas + devices[part] - 1) / devices[part];
    all += cost;
    if (static_cast<double>(turns) * cost < busiest) continue;
    busiest = static_cast<double>(turns) * cost;
    of_busiest = cost;
  }
  out.seconds = busiest + all - of_busiest;
  for (const size_t stage : first) out.cut += text(out.cut.empty() ? "" : " | ", stages[stage].name);
  return out;
}

std::string megabytes(int64_t bytes) {
  return text((bytes + (1 << 19)) >> 20, " MiB");
}

}  // namespace

std::vector<SplitForecast> forecast_splits(const std::vector<StageCost>& stages, const SplitQuestion& question) {
  LOCKSTEP_ASSERT(!stages.empty() && question.devices >= 1 && question.slices >= 1);
  std::vector<SplitForecast> all;
  for (int64_t sharers = 1; sharers <= question.devices; ++sharers) {
    if (question.slices % sharers != 0) continue;
    const int64_t most_parts = std::min<int64_t>(question.devices / sharers, static_cast<int64_t>(stages.size()));
    for (int64_t parts = 1; parts <= most_parts; ++parts)
      all.push_back(forecast(stages, question, {.parts = parts, .sharers = sharers}));
  }
  const auto fits = [&](const SplitForecast& one) {
    return question.most_bytes == 0 || one.bytes <= question.most_bytes;
  };
  std::ranges::stable_sort(all, [&](const SplitForecast& a, const SplitForecast& b) {
    if (fits(a) != fits(b)) return fits(a);
    return fits(a) ? a.seconds < b.seconds : a.bytes < b.bytes;
  });
  return all;
}

std::string describe(const std::vector<SplitForecast>& forecasts, int64_t most_bytes) {
  std::string out;
  for (const SplitForecast& one : forecasts) {
    char milliseconds[32];
    std::snprintf(milliseconds, sizeof milliseconds, "%.1f ms", 1e3 * one.seconds);
    out += text(out.empty() ? "" : "\n", "split auto: ", to_string(one.split), out.empty() ? " is chosen" : "", ": ",
                milliseconds, " a step's passes, replicas in flight keep ", megabytes(one.bytes));
    if (one.split.parts > 1) out += text(", parts begin with ", one.cut);
    if (most_bytes > 0 && one.bytes > most_bytes) out += text(", more than the ", megabytes(most_bytes), " allowed");
  }
  return out;
}

}  // namespace lockstep::parallel
