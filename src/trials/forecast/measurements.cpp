// SPDX-License-Identifier: Apache-2.0
#include "trials/forecast/measurements.h"

#include <fstream>

#include "lockstep/comm/connect.h"
#include "lockstep/comm/group.h"
#include "lockstep/parallel/choose_split.h"
#include "trials/child.h"

namespace lockstep::trials {
namespace {

using run::Json;

constexpr int64_t kLinkBytes = 16 << 20;
constexpr int kLinkRounds = 7;

Json answer_passes(const run::Config& config, const MakeTask& make_task) {
  const auto passes = train::profile_passes(config, make_task(config));
  return {{"cost", to_json(passes.cost)},
          {"has_stages", passes.has_stages},
          {"examples", passes.examples},
          {"updates", passes.updates},
          {"states", passes.states},
          {"buffers_bytes", passes.buffers_bytes},
          {"peak_mib", static_cast<double>(peak_kib()) / 1024}};
}

Json answer_shares(const Json& request, const run::Config& config, const MakeTask& make_task) {
  const auto task = make_task(config);
  Json all = Json::array();
  for (const Json& batch : request["batches"])
    all.push_back(train::coming_shares(config, task, batch[0], batch[1], request["steps"]));
  return all;
}

Json asked(const char* what, const run::Config& config) {
  run::Config quiet = config;
  quiet.quiet = true;
  quiet.out.clear();
  return {{"what", what}, {"config", run::to_toml(quiet)}};
}

}  // namespace

void answer_measurement(const Json& request, const std::filesystem::path& folder, const MakeTask& make_task) {
  run::Config config;
  if (request.contains("config")) run::read_toml(config, request["config"], "the configuration");
  if (request["what"] == "passes") return write_answer(folder, answer_passes(config, make_task));
  if (request["what"] == "shares") return write_answer(folder, answer_shares(request, config, make_task));
  const comm::Group all = comm::connect();
  const Json link = to_json(parallel::measure_link(all, kLinkBytes, kLinkRounds));
  if (all.rank() == 0) write_answer(folder, link);
  all.finish();
}

int64_t peak_kib() {
  int64_t peak = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> peak;
  return peak;
}

MeasuredPasses measure_passes(const run::Config& config) {
  const Json answer = run_child({.request = asked("passes", config)});
  return {.passes = {.cost = step_cost_from(answer["cost"]),
                     .has_stages = answer["has_stages"],
                     .examples = answer["examples"],
                     .updates = answer["updates"],
                     .states = answer["states"],
                     .buffers_bytes = answer["buffers_bytes"]},
          .peak_mib = answer["peak_mib"]};
}

std::vector<Shares> find_shares(const run::Config& config, const std::vector<std::pair<int64_t, int64_t>>& batches,
                                int64_t steps) {
  Json request = asked("shares", config);
  request["steps"] = steps;
  for (const auto& [batch, replicas] : batches) request["batches"].push_back({batch, replicas});
  return run_child({.request = request}).get<std::vector<Shares>>();
}

parallel::LinkCost measure_link(const std::vector<std::string>& launcher) {
  return link_from(run_child({.request = {{"what", "link"}}, .processes = 2, .launcher = launcher}));
}

}  // namespace lockstep::trials
