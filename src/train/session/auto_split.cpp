// SPDX-License-Identifier: Apache-2.0
#include "train/session/auto_split.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"
#include "lockstep/train/job.h"
#include "train/profile/passes.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kAuto = "auto";

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

}  // namespace

bool is_auto_split(const std::string& split) {
  return split == kAuto || split.starts_with("auto:");
}

std::pair<std::string, std::string> choose_split(const std::string& text, models::Classifier& network,
                                                 const std::function<data::Batch()>& first_batch,
                                                 const run::Config& config, Precision precision, int64_t threads,
                                                 const comm::Group& group) {
  const int64_t most = most_bytes(text);
  const std::string found = from_leader(group, [&] {
    const data::Batch batch = first_batch();
    auto cost = cost_of_passes(network, batch, config, precision);
    if (config.slices > 1 && threads > 1) cost.meeting = parallel::measure_meeting();
    const auto forecasts =
        parallel::forecast_splits(cost, {.replicas = (config.replicas + group.size() - 1) / group.size(),
                                         .devices = threads,
                                         .slices = config.slices,
                                         .most_bytes = most});
    return parallel::to_string(forecasts[0].split) + "\n" + parallel::describe(forecasts, most);
  });
  const size_t line = found.find('\n');
  return {found.substr(0, line), found.substr(line + 1)};
}

}  // namespace lockstep::train
