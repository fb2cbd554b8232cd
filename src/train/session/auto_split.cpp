// SPDX-License-Identifier: Apache-2.0
#include "train/session/auto_split.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"
#include "lockstep/train/job.h"
#include "train/profile/passes.h"
#include "train/session/plan.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kAuto = "auto";
// Little enough for a slow link: 8 MiB cross in all.
constexpr int64_t kLinkBytes = 1 << 20;
constexpr int kLinkRounds = 3;
constexpr int kPasses = 3;  // measurements, the middle one counts

// "auto" allows any number of bytes: 0.
int64_t most_bytes(const std::string& text) {
  if (text == kAuto) return 0;
  std::string_view rest = text;
  rest.remove_prefix(kAuto.size());
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
  const std::string_view unit(end, static_cast<size_t>(rest.data() + rest.size() - end));
  require(rest.starts_with(':') && error == std::errc() && number > 0 && (unit == "MiB" || unit == "GiB"), "train",
          "--split is '", text, "', expected auto, or auto:2GiB (auto:500MiB) with the most that replicas may keep");
  return static_cast<int64_t>(number * (unit == "MiB" ? 1 << 20 : 1 << 30));
}

int64_t least_of(const comm::Group& group, int64_t mine) {
  const auto least = at::full({1}, mine, at::kLong);
  group.all_reduce(least, ReduceOp::min).wait();
  return least.item<int64_t>();
}

std::string describe(const parallel::LinkCost& link) {
  char line[96];
  std::snprintf(line, sizeof line, "\nsplit auto: processes send each other %.0f Mbit/s, with a latency of %.2f ms",
                8e-6 * link.bytes_per_second, 1e3 * link.latency);
  return line;
}

}  // namespace

bool is_auto_split(const std::string& split) {
  return split == kAuto || split.starts_with("auto:");
}

std::pair<std::string, std::string> choose_split(const std::string& text, models::Classifier& network,
                                                 const std::function<data::Batch()>& first_batch,
                                                 const run::Config& config, Precision precision, int64_t threads,
                                                 const comm::Group& group) {
  const int64_t most = most_bytes(text);
  parallel::LinkCost link;
  if (group.size() > 1) {
    threads = least_of(group, threads);
    link = parallel::measure_link(group, kLinkBytes, kLinkRounds);
  }
  const std::string found = from_leader(group, [&] {
    const data::Batch batch = first_batch();
    auto cost = cost_of_passes(network, batch, config, precision, kPasses);
    if (config.slices > 1 && threads > 1) cost.meeting = parallel::measure_meeting();
    parallel::measure_update(cost, static_cast<int64_t>(parallel::state_names(rule_of(config)).size()));
    const auto forecasts = parallel::forecast_splits(
        cost,
        {.replicas = config.replicas,
         .processes = group.size(),
         .devices = threads,
         .slices = config.slices,
         .may_be_processes = !batch.coordinates.defined() && config.blocks.empty() && config.audit == 0,
         .order = comm::parse_order(config.reduce),
         .most_bytes = most},
        {}, link);
    return parallel::to_string(forecasts[0].split) + "\n" + parallel::describe(forecasts, most) +
           (group.size() > 1 ? describe(link) : "");
  });
  const size_t line = found.find('\n');
  return {found.substr(0, line), found.substr(line + 1)};
}

}  // namespace lockstep::train
