// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/trials/profile.h"
#include "trials/forecast/measurements.h"

namespace lockstep::trials {
namespace {

using run::Json;

constexpr int kFormat = 3;

}  // namespace

void write_profile(const Profile& profile, const std::filesystem::path& file) {
  Json json{{"format", kFormat},
            {"processor", profile.processor},
            {"cores", profile.cores},
            {"model", profile.model},
            {"data", profile.data},
            {"batch", profile.batch},
            {"replicas", profile.replicas},
            {"cost", to_json(profile.cost)},
            {"passes_slowdown", profile.slowdown.passes},
            {"memory_slowdown", profile.slowdown.memory},
            {"thread_passes_slowdown", profile.slowdown.thread_passes},
            {"thread_memory_slowdown", profile.slowdown.thread_memory},
            {"thread_turn", profile.slowdown.thread_turn},
            {"seconds", profile.seconds},
            {"spread", profile.spread},
            {"thread_spread", profile.thread_spread},
            {"jitter", profile.jitter},
            {"rounds", profile.rounds},
            {"steps", profile.steps},
            {"peak_mib", profile.peak_mib},
            {"replica_mib", profile.replica_mib},
            {"examples", profile.examples},
            {"buffers_bytes", profile.buffers_bytes},
            {"has_stages", profile.has_stages},
            {"clouds", profile.clouds},
            {"fixed_part", profile.fixed_part}};
  if (profile.loopback) json["loopback"] = to_json(*profile.loopback);
  write_file(file, run::dump_json(json) + "\n");
}

Profile read_profile(const std::filesystem::path& file) {
  const Json json = run::parse_json("forecast", read_file(file, "forecast"), file.string());
  try {
    require(json.at("format") == kFormat, "forecast", file.string(), " is a profile of format ",
            json.at("format").dump(), ", expected ", kFormat, ": measure it anew");
    Profile profile{.processor = json.at("processor"),
                    .cores = json.at("cores"),
                    .model = json.at("model"),
                    .data = json.at("data"),
                    .batch = json.at("batch"),
                    .replicas = json.at("replicas"),
                    .cost = step_cost_from(json.at("cost")),
                    .seconds = json.at("seconds"),
                    .spread = json.at("spread"),
                    .thread_spread = json.at("thread_spread"),
                    .jitter = json.at("jitter"),
                    .rounds = json.at("rounds"),
                    .steps = json.at("steps"),
                    .peak_mib = json.at("peak_mib"),
                    .replica_mib = json.at("replica_mib"),
                    .examples = json.at("examples"),
                    .buffers_bytes = json.at("buffers_bytes"),
                    .has_stages = json.at("has_stages"),
                    .clouds = json.at("clouds"),
                    .fixed_part = json.at("fixed_part")};
    profile.slowdown = {.passes = json.at("passes_slowdown"),
                        .memory = json.at("memory_slowdown"),
                        .thread_passes = json.at("thread_passes_slowdown"),
                        .thread_memory = json.at("thread_memory_slowdown"),
                        .thread_turn = json.at("thread_turn")};
    if (json.contains("loopback")) profile.loopback = link_from(json.at("loopback"));
    return profile;
  } catch (const Json::exception& error) {
    fail("forecast", file.string(), " is no profile (", error.what(), "), expected one that forecast --save wrote");
  }
}

}  // namespace lockstep::trials
