// SPDX-License-Identifier: Apache-2.0
#include "cli/step_watch.h"

#include <cstdio>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/device.h"
#include "lockstep/train/job.h"

namespace lockstep::cli {
namespace {

int64_t threads_of(const run::Config& config) {
  return static_cast<int64_t>(parse_devices(config.devices).size());
}

// A profile is of this host's CPU.
void check_placement(const run::Config& config) {
  require(parse_devices(config.devices)[0].kind == Device::Kind::cpu, "train",
          "--forecast is for CPUs, and devices are ", config.devices, ": GPUs can't be profiled yet");
  require(config.audit == 0 && config.blocks.empty(), "train",
          "--forecast knows nothing of --audit and --blocks, expected it without them");
  const comm::Environment place = comm::read_environment();
  require(place.size == place.local_size, "train", "--forecast without a file knows no link between hosts, and ",
          place.local_size, " of ", place.size, " processes are on this one, expected all");
}

// As a trainer of one process will have it.
run::Config worked_out(run::Config config) {
  const int64_t threads = threads_of(config);
  if (config.batch == 0) config.batch = run::usual_batch(data::names_clouds(config.data));
  if (config.scale_batch) config.batch *= threads;
  config.scale_batch = false;
  if (config.replicas == 0) config.replicas = run::default_replicas(/*cuda=*/false, threads, config.batch);
  return config;
}

}  // namespace

StepWatch::StepWatch(bool asked, const std::string& file) : asked_(asked) {
  if (!file.empty()) profile_ = trials::read_profile(file);
}

void StepWatch::measure(const run::Config& given) {
  if (!asked_ || profile_) return;
  run::Config config = given;
  if (config.devices.empty()) config.devices = usual_devices();
  check_placement(config);
  if (comm::read_environment().launcher != "none") return;
  config = worked_out(config);
  const int64_t threads = threads_of(config);
  profile_ = trials::remembered_profile(config);
  if (profile_ && profile_->knows(1, threads)) return;
  const auto say = [&](const std::string& line) {
    if (!config.quiet) std::fprintf(stderr, "%s\n", line.c_str());
  };
  say("no profile of this training is remembered: it is measured first");
  profile_ = trials::measure_profile({.config = config, .slows = threads > 1}, say);
  trials::remember_profile(config, *profile_);
}

void StepWatch::forecast_remembered(const run::Config& config, int64_t processes) {
  check_placement(config);
  const int64_t threads = threads_of(config);
  const auto profile = trials::remembered_profile(config);
  require(profile && profile->knows(processes, threads), "train", "no profile of this training on ", processes, " x ",
          threads, " devices is remembered, expected one: lockstep forecast ", config.model, " --hosts ", processes,
          "x", threads, " --devices ", processes * threads, " --replicas ", config.replicas,
          " and the other options of this training, or --forecast FILE");
  forecast_ = trials::forecast_of(config, processes, threads, *profile);
}

void StepWatch::begin(train::Trainer& trainer, const comm::Group& group) {
  const run::Config& config = trainer.config();
  if (profile_) {
    forecast_ = trials::forecast_of(config, group.size(), threads_of(config), *profile_);
  } else if (asked_) {
    train::from_leader(group, [&] {
      forecast_remembered(config, group.size());
      return "";
    });
  } else if (group.rank() == 0 && !data::names_clouds(config.data)) {  // a process would look up their sizes first
    try {
      forecast_remembered(config, group.size());
    } catch (const std::exception& error) {  // no training fails for it
      log_debug("no forecast: ", error.what());
    }
  }
  if (!forecast_ || group.rank() != 0) return;
  trainer.on_step([this](const train::StepReport& step, const models::Classifier&) { phases_.add(step); });
}

std::string StepWatch::verdict() const {
  const auto phases = phases_.mean();
  if (!forecast_ || !phases) return "";
  trials::ForecastRow row = *forecast_;
  row.measured = phases->sum();
  row.measured_phases = phases;
  const std::string off = trials::phase_that_was_off(row);
  return trials::verdict(row.step.seconds, row.low, row.high, *row.measured) +
         (off.empty() ? "" : "; beyond its interval, most of it in: " + off);
}

}  // namespace lockstep::cli
