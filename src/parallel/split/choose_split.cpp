// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"

namespace lockstep::parallel {
namespace {

SplitForecast forecast(const StepCost& cost, const SplitQuestion& question, const Split& split,
                       const Slowdown& slowdown, const LinkCost& link) {
  const bool apart = parts_are_processes(split, question.processes, question.devices);
  const int64_t copies = question.processes / (apart ? split.parts : 1);
  const StepForecast step = forecast_step(cost,
                                          {.blocks = Placement::even(question.replicas, copies),
                                           .devices = question.devices,
                                           .split = split,
                                           .parts_are_processes = apart,
                                           .order = question.order},
                                          slowdown, link);
  SplitForecast out{.split = split, .seconds = step.seconds, .bytes = step.kept_bytes};
  for (const int64_t stage : step.first_stages) out.cut += text(out.cut.empty() ? "" : " | ", cost.stages[stage].name);
  return out;
}

std::string megabytes(int64_t bytes) {
  return text((bytes + (1 << 19)) >> 20, " MiB");
}

}  // namespace

std::vector<Split> possible_splits(const SplitQuestion& question, int64_t stages) {
  const int64_t apart = question.may_be_processes && question.processes > 1 ? question.processes : 1;
  std::vector<Split> all;
  for (int64_t sharers = 1; sharers <= question.devices; ++sharers) {
    if (question.slices % sharers != 0) continue;
    for (int64_t parts = 1; parts <= std::min(stages, std::max(apart, question.devices / sharers)); ++parts)
      if (parts * sharers <= question.devices || apart % parts == 0)
        all.push_back({.parts = parts, .sharers = sharers});
  }
  return all;
}

std::vector<SplitForecast> forecast_splits(const StepCost& cost, const SplitQuestion& question,
                                           const Slowdown& slowdown, const LinkCost& link) {
  LOCKSTEP_ASSERT(!cost.stages.empty() && question.devices >= 1 && question.slices >= 1);
  std::vector<SplitForecast> all;
  for (const Split& split : possible_splits(question, static_cast<int64_t>(cost.stages.size())))
    all.push_back(forecast(cost, question, split, slowdown, link));
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
                milliseconds, " a step, replicas in flight keep ", megabytes(one.bytes));
    if (one.split.parts > 1) out += text(", parts begin with ", one.cut);
    if (most_bytes > 0 && one.bytes > most_bytes) out += text(", more than the ", megabytes(most_bytes), " allowed");
  }
  return out;
}

}  // namespace lockstep::parallel
