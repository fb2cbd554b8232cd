// SPDX-License-Identifier: Apache-2.0
#include "trials/forecast/measurements.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>

#include "lockstep/base/detail/median.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/group.h"
#include "trials/child.h"

namespace lockstep::trials {
namespace {

using run::Json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRounds = 7;

/// Of this process, on all its threads.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Spent {
  double seconds, cpu;
};

/// The median of what a call takes, where all ranks begin together.
Spent time_of(const comm::Group& group, int repetitions, const std::function<void()>& call) {
  std::vector<double> seconds, cpu;
  for (int round = -1; round < kRounds; ++round) {
    group.barrier().wait();
    const auto began = SteadyClock::now();
    const double cpu_began = cpu_seconds();
    for (int i = 0; i < repetitions; ++i) call();
    if (round < 0) continue;
    seconds.push_back(std::chrono::duration<double>(SteadyClock::now() - began).count() / repetitions);
    cpu.push_back((cpu_seconds() - cpu_began) / repetitions);
  }
  return {median(std::move(seconds)), median(std::move(cpu))};
}

/// Sums of three sizes and many small messages at once.
parallel::LinkCost link_of(const comm::Group& group) {
  constexpr int64_t kSmall = 4 << 20, kLarge = 16 << 20;
  constexpr int kMessages = 64;
  const auto sum_of = [&](int64_t bytes, int repetitions) {
    const auto tensor = at::zeros({bytes / 4});
    return time_of(group, repetitions, [&] { group.all_reduce(tensor).wait(); });
  };
  const Spent tiny = sum_of(64, 50), small = sum_of(kSmall, 4), large = sum_of(kLarge, 1);
  const int other = 1 - group.rank();
  const auto token = at::zeros({1}), heard = at::zeros({kMessages});
  const Spent burst = time_of(group, 4, [&] {
    std::vector<comm::Work> works;
    for (int m = 0; m < kMessages; ++m) works.push_back(group.recv(heard.narrow(0, m, 1), other, m));
    for (int m = 0; m < kMessages; ++m) works.push_back(group.send(token, other, m));
    for (auto& work : works) work.wait();
  });
  const double bytes = kLarge - kSmall, more = std::max(1e-6, large.seconds - small.seconds);
  const double message = std::min(tiny.seconds, burst.seconds / kMessages);
  return {.latency = tiny.seconds - message,
          .bytes_per_second = bytes / more,
          .message = message,
          .cpu_byte = std::max(0.0, large.cpu - small.cpu) / bytes,
          .cpu_message = burst.cpu / kMessages};
}

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
  const Json link = to_json(link_of(all));
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
