// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/sweep.h"

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/numerics/device.h"

namespace lockstep::trials {
namespace {

Trial trial_of(const SweepOptions& options, double lr, int64_t devices) {
  const run::Config& config = options.config;
  Trial trial{.config = config, .evaluated = true};
  trial.config.lr = lr;
  if (!options.fixed_batch) trial.config.batch = config.batch * devices;
  if (cuda_devices().empty()) {
    trial.config.devices = text("cpu:", devices);
  } else {
    trial.processes = static_cast<int>(devices);
    trial.config.devices = "cuda";
  }
  return trial;
}

void check(const SweepOptions& options) {
  require(!options.rates.empty() && !options.devices.empty(), "sweep",
          "--lr or --devices is empty, expected numbers, as in --lr 0.05,0.1 --devices 1,2");
  for (const double rate : options.rates) require(rate > 0, "sweep", "--lr has ", rate, ", expected more than 0");
  for (const int64_t devices : options.devices)
    require(devices >= 1, "sweep", "--devices has ", devices, ", expected 1 or more");
}

}  // namespace

SweepOptions with_defaults(SweepOptions options) {
  check(options);
  run::Config& config = options.config;
  if (config.batch == 0) config.batch = run::usual_batch(data::names_clouds(config.data));
  config.evaluate_every = 0;
  run::check(config);
  return options;
}

std::vector<SweepRow> sweep(const SweepOptions& given, const std::function<void(const SweepRow&)>& on_row) {
  const SweepOptions options = with_defaults(given);
  std::vector<SweepRow> out;
  for (const int64_t devices : options.devices)
    for (const double lr : options.rates) {
      SweepRow& row = out.emplace_back(SweepRow{.devices = devices, .lr = lr});
      try {
        row.result = run_trial(trial_of(options, lr, devices));
      } catch (const TrialFailed& failed) {  // its loss may have become infinite: that is an answer too
        if (failed.exit_code() != 1) throw;
      }
      if (on_row) on_row(row);
    }
  return out;
}

}  // namespace lockstep::trials
