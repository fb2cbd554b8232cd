// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/verify.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "lockstep/base/detail/median.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/dataset.h"
#include "trials/given.h"

namespace lockstep::trials {
namespace {

constexpr int64_t kReplicas = 8;
constexpr int64_t kComparedSteps = 20;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) out.push_back(part);
  return out;
}

int64_t parse_count(const std::string& word, const std::string& whole) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  require(error == std::errc() && end == word.data() + word.size() && value >= 1 && value <= 4096, "verify",
          "placement '", whole, "' has '", word, "', expected k threads (4), PxT processes of threads (2x4) or a+b+c ",
          "replicas of each process (3+3+2), and behind a colon how they divide the network (4:p2)");
  return value;
}

PlacementText parse_devices_of(const std::string& text, int64_t replicas) {
  PlacementText out{.text = text};
  if (text.find('+') != std::string::npos) {
    for (const auto& part : split(text, '+')) out.blocks.push_back(parse_count(part, text));
    const int64_t sum = std::accumulate(out.blocks.begin(), out.blocks.end(), int64_t{0});
    require(sum == replicas, "verify", "placement '", text, "' has ", sum, " replicas, expected ", replicas);
    out.processes = static_cast<int>(out.blocks.size());
    out.threads = *std::ranges::max_element(out.blocks);
  } else if (const size_t x = text.find('x'); x != std::string::npos) {
    out.processes = static_cast<int>(parse_count(text.substr(0, x), text));
    out.threads = parse_count(text.substr(x + 1), text);
  } else {
    out.threads = parse_count(text, text);
  }
  require(out.processes <= replicas, "verify", "placement '", text, "' has ", out.processes, " processes for ",
          replicas, " replicas, expected one replica each at least");
  return out;
}

PlacementText parse_placement(const std::string& text, int64_t replicas) {
  const size_t colon = text.find(':');
  PlacementText out = parse_devices_of(text.substr(0, colon), replicas);
  out.text = text;
  if (colon != std::string::npos) out.split = parallel::parse_split(text.substr(colon + 1));
  return out;
}

Trial trial_of(const run::Config& config, const PlacementText& placement) {
  Trial trial{.config = config, .processes = placement.processes, .hashes = true};
  trial.config.devices = text("cpu:", placement.threads);
  trial.config.blocks = placement.blocks;
  trial.config.split = parallel::to_string(placement.split);
  return trial;
}

}  // namespace

std::vector<PlacementText> parse_placements(const std::string& text, int64_t replicas) {
  std::vector<PlacementText> out;
  for (const auto& part : split(text, ';')) out.push_back(parse_placement(part, replicas));
  require(out.size() >= 2, "verify", "--placements is '", text, "', expected two or more, as in \"1;2;2x4\"");
  return out;
}

std::string usual_placements(int64_t replicas, bool processes) {
  std::string out = "1";
  if (replicas >= 2) out += ";2";
  if (replicas >= 3) out += text(";", replicas);
  if (processes && replicas >= 2 && replicas % 2 == 0) out += text(";2x", replicas / 2);
  if (processes && replicas >= 3) out += text(";", (replicas + 2) / 3, "+", (replicas + 1) / 3, "+", replicas / 3);
  return out;
}

std::optional<Difference> first_difference(const TrialResult& a, const TrialResult& b) {
  for (size_t step = 0; step < std::max(a.hashes.size(), b.hashes.size()); ++step) {
    if (step >= a.hashes.size() || step >= b.hashes.size()) return Difference{step + 1, "the number of steps"};
    for (size_t t = 0; t < a.names.size(); ++t)
      if (a.hashes[step][t] != b.hashes[step][t]) return Difference{step + 1, a.names[t]};
  }
  return std::nullopt;
}

VerifyOptions with_defaults(VerifyOptions options) {
  run::Config& config = options.config;
  const auto is_given = [&](const char* name) { return is_set(config, options.given, name); };
  if (!is_given("steps")) config.steps = kComparedSteps;
  if (!is_given("epochs")) config.epochs = 0;
  if (!is_given("replicas")) config.replicas = kReplicas;
  if (!is_given("batch"))
    config.batch = data::names_clouds(config.data) ? 2 * config.replicas : std::max<int64_t>(8 * config.replicas, 64);
  run::check(config);
  const bool processes = !comm::backends().empty();
  if (options.placements.empty()) options.placements = usual_placements(config.replicas, processes);
  const auto placements = parse_placements(options.placements, config.replicas);
  if (!processes)
    require(std::ranges::all_of(placements, [](const auto& p) { return p.processes == 1; }), "verify",
            "this build has no backend that joins processes, expected placements of threads: --placements \"1;2;8\"");
  return options;
}

VerifyResult verify(const VerifyOptions& given, const std::function<void(const VerifyRow&)>& on_row) {
  const VerifyOptions options = with_defaults(given);
  std::optional<TrialResult> first;
  VerifyResult out;
  for (const auto& placement : parse_placements(options.placements, options.config.replicas)) {
    const TrialResult result = run_trial(trial_of(options.config, placement));
    if (!first) first = result;
    out.rows.push_back({placement.text, median(result.step_seconds), first_difference(*first, result)});
    out.identical &= !out.rows.back().difference;
    if (on_row) on_row(out.rows.back());
  }
  return out;
}

}  // namespace lockstep::trials
