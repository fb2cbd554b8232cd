// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/trial.h"

#include <ATen/ops/from_blob.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/run/detail/json.h"
#include "lockstep/run/weights.h"
#include "lockstep/trials/detail/step_phases.h"
#include "trials/child.h"
#include "trials/forecast/measurements.h"
#include "trials/traced.h"

namespace lockstep::trials {
namespace {

using run::Json;

class Recording {
 public:
  void step(const train::StepReport& report) {
    const auto now = std::chrono::steady_clock::now();
    // Replicas that take turns go to and fro, as whoever ends a step begins the next: the one that reports does so
    // after half a step and after one and a half. So two neighbours count together.
    const double passed = std::chrono::duration<double>(now - last_).count();
    seconds_.push_back((passed + (seconds_.empty() ? passed : passed_before_)) / 2);
    passed_before_ = passed;
    losses_.push_back(report.loss);
    phases_.add(report);
    last_ = std::chrono::steady_clock::now();
  }

  void weights(const models::StateDict& weights) {
    std::vector<std::string> row;
    names_.clear();
    for (const auto& [name, tensor] : weights) {
      names_.push_back(name);
      row.push_back(run::hash_of({{name, tensor}}));
    }
    rows_.push_back(std::move(row));
    last_ = std::chrono::steady_clock::now();  // hashing is no part of a step
  }

  // The mean over trainings side by side.
  void average(const comm::Group& trainings) {
    trainings
        .all_reduce(at::from_blob(seconds_.data(), static_cast<int64_t>(seconds_.size()), at::kDouble), ReduceOp::mean)
        .wait();
  }

  Json json(const train::Trainer& trainer, const train::Outcome& outcome) const {
    Json out{{"placement", trainer.describe()},
             {"batch", trainer.config().batch},
             {"replicas", trainer.config().replicas},
             {"step_seconds", seconds_},
             {"train_loss", outcome.last.train_loss},
             {"train_accuracy", outcome.last.train_accuracy},
             {"seconds", outcome.seconds},
             {"names", names_},
             {"hashes", rows_},
             {"losses", losses_},
             {"hash", outcome.hash},
             {"why_split", trainer.why_split()}};
    if (const auto phases = phases_.mean())
      for (const auto& [name, member] : run::phase_members) out["phases"][name] = *phases.*member;
    if (outcome.last.test) {
      out["test_loss"] = outcome.last.test->loss;
      out["test_accuracy"] = outcome.last.test->accuracy;
    }
    return out;
  }

 private:
  StepPhases phases_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double passed_before_ = 0;
  std::vector<double> seconds_, losses_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> rows_;
};

Json request_of(const Trial& trial) {
  return {{"what", "train"},        {"config", run::to_toml(trial.config)}, {"apart", trial.apart},
          {"hashes", trial.hashes}, {"evaluated", trial.evaluated},         {"traced", trial.traced}};
}

Trial read_trial(const Json& json) {
  Trial trial{
      .apart = json["apart"], .hashes = json["hashes"], .evaluated = json["evaluated"], .traced = json["traced"]};
  run::read_toml(trial.config, json["config"], "the trial's configuration");
  return trial;
}

// The largest of all processes' bytes sent in a step and KiB of memory.
std::vector<int64_t> most_used(const train::Outcome& outcome, const comm::Group& all) {
  std::vector<int64_t> used{outcome.bytes_a_step, peak_kib()};
  all.all_reduce(at::from_blob(used.data(), static_cast<int64_t>(used.size()), at::kLong), ReduceOp::max).wait();
  return used;
}

void train_for(Trial trial, const std::filesystem::path& folder, const MakeTask& make_task) {
  run::Config& config = trial.config;
  const comm::Group all = comm::connect();
  if (trial.apart && config.devices == "cuda") config.devices = comm::usual_devices(all);
  auto task = make_task(config);
  if (!trial.evaluated) task.test.reset();
  train::Trainer trainer(config, std::move(task), trial.apart ? all.split(-1) : all);
  if (trial.apart) all.barrier().wait();  // they begin together
  Recording recording;
  trainer.on_step([&](const train::StepReport& step, const models::Classifier&) { recording.step(step); });
  if (trial.hashes)
    trainer.on_weights([&](const train::StepReport&, const models::StateDict& weights) { recording.weights(weights); });
  const auto outcome = trainer.run();
  if (trial.apart) recording.average(all);
  const auto used = most_used(outcome, all);
  if (all.rank() == 0) {
    Json out = recording.json(trainer, outcome);
    out["bytes_sent"] = used[0];
    out["peak_mib"] = static_cast<double>(used[1]) / 1024;
    write_answer(folder, out);
  }
  all.finish();
}

double number(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
}

TrialResult parse(const Json& json) {
  TrialResult out;
  out.placement = json["placement"];
  out.batch = json["batch"];
  out.replicas = json["replicas"];
  out.step_seconds = json["step_seconds"].get<std::vector<double>>();
  out.train_loss = number(json, "train_loss");
  out.train_accuracy = number(json, "train_accuracy");
  out.test_loss = number(json, "test_loss");
  out.test_accuracy = number(json, "test_accuracy");
  out.seconds = number(json, "seconds");
  if (json.contains("phases")) {
    out.phases.emplace();
    for (const auto& [name, member] : run::phase_members) *out.phases.*member = number(json["phases"], name);
  }
  out.names = json["names"].get<std::vector<std::string>>();
  out.hashes = json["hashes"].get<std::vector<std::vector<std::string>>>();
  out.hash = json["hash"];
  out.why_split = json["why_split"];
  out.bytes_sent = json["bytes_sent"];
  out.peak_mib = json["peak_mib"];
  for (const auto& loss : json["losses"])  // null where it is no number
    out.losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  return out;
}

}  // namespace

bool serve(const MakeTask& make_task) {
  const std::filesystem::path folder = folder_of_request();
  if (folder.empty()) return false;
  const Json request = read_request(folder);
  if (request["what"] == "train")
    train_for(read_trial(request), folder, make_task);
  else
    answer_measurement(request, folder, make_task);
  return true;
}

TrialResult run_trial(const Trial& trial) {
  Trial quiet = trial;
  quiet.config.quiet = true;
  quiet.config.out.clear();
  std::vector<TracedStep> traced;
  TrialResult out = parse(run_child(
      {.request = request_of(quiet), .processes = trial.processes, .traced = trial.traced, .launcher = trial.launcher},
      [&](const auto& folder) {
        if (trial.traced) traced = read_traces(folder);
      }));
  out.traced = std::move(traced);
  return out;
}

}  // namespace lockstep::trials
