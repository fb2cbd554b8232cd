// SPDX-License-Identifier: Apache-2.0
#include "cli/trial.h"

#include <ATen/ops/from_blob.h>
#include <stdlib.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/run/weights.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TrialOptions {
  std::string config;
  std::string result;
  bool apart = false;
  bool hashes = false;
  bool evaluated = false;
};

// A folder for the files that a trial and its processes pass each other.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "lockstep_trial_XXXXXX").string();
    require(mkdtemp(path.data()) != nullptr, "trial", "no folder can be made in ",
            std::filesystem::temp_directory_path().string());
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path file(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

class Recording {
 public:
  explicit Recording(bool hashes) : hashes_(hashes) {}

  void step(const train::StepReport& report, const models::Classifier& network) {
    const auto now = std::chrono::steady_clock::now();
    // Replicas that take turns go to and fro, as whoever ends a step begins the next: the one that reports does so
    // after half a step and after one and a half. So two neighbours count together.
    const double passed = std::chrono::duration<double>(now - last_).count();
    seconds_.push_back((passed + (seconds_.empty() ? passed : passed_before_)) / 2);
    passed_before_ = passed;
    losses_.push_back(report.loss);
    if (++steps_ > kWarmUpSteps + 1) sum_ += report.phases;  // they are of the step before
    if (hashes_) {
      std::vector<std::string> row;
      names_.clear();
      for (const auto& [name, tensor] : models::state_dict(network)) {
        names_.push_back(name);
        row.push_back(run::hash_of({{name, tensor}}));
      }
      rows_.push_back(std::move(row));
    }
    last_ = std::chrono::steady_clock::now();
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
             {"losses", losses_}};
    if (const auto steps = static_cast<double>(steps_ - kWarmUpSteps - 1); steps > 0)
      for (const auto& [name, member] : run::phase_members) out["phases"][name] = sum_.*member / steps;
    if (outcome.last.test) {
      out["test_loss"] = outcome.last.test->loss;
      out["test_accuracy"] = outcome.last.test->accuracy;
    }
    return out;
  }

 private:
  bool hashes_;
  int64_t steps_ = 0;
  run::Phases sum_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double passed_before_ = 0;
  std::vector<double> seconds_, losses_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> rows_;
};

int run_one(const TrialOptions& options) {
  run::Config config;
  run::read_toml_file(config, options.config);
  const comm::Group all = comm::connect();
  if (options.apart && config.devices == "cuda") config.devices = text("cuda:", comm::read_environment().local_rank);
  auto task = train::make_task(config);
  if (!options.evaluated) task.test.reset();
  train::Trainer trainer(config, std::move(task), options.apart ? all.split(-1) : all);
  if (options.apart) all.barrier().wait();  // they begin together
  Recording recording(options.hashes);
  trainer.on_step([&](const train::StepReport& step, const models::Classifier& net) { recording.step(step, net); });
  const auto outcome = trainer.run();
  if (options.apart) recording.average(all);
  if (all.rank() == 0) write_file(options.result, recording.json(trainer, outcome).dump());
  all.finish();
  return 0;
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
  for (const auto& loss : json["losses"])  // null where it is no number
    out.losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  return out;
}

}  // namespace

TrialResult run_trial(const Trial& trial) {
  const Folder folder;
  run::Config config = trial.config;
  config.quiet = true;
  config.out.clear();
  write_file(folder.file("config.toml"), run::to_toml(config));
  launch::Options run_options;
  run_options.processes = trial.processes;
  run_options.no_prefix = true;
  run_options.ends_on_signal = true;
  run_options.program = {"/proc/self/exe", "trial",
                         "--config",       folder.file("config.toml").string(),
                         "--result",       folder.file("result.json").string()};
  if (trial.apart) run_options.program.emplace_back("--apart");
  if (trial.hashes) run_options.program.emplace_back("--hashes");
  if (trial.evaluated) run_options.program.emplace_back("--evaluated");
  const int code = launch::run(run_options);
  if (code != 0) throw TrialFailed(code, text("a training ended with exit code ", code));
  return parse(Json::parse(read_file(folder.file("result.json"))));
}

void check_results(const std::string& json, const std::string& chart) {
  if (!json.empty()) check_writable(json);
  if (chart.empty()) return;
  for (const char* suffix : {".svg", ".png"}) check_writable(chart + suffix);
}

void setup_trial(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TrialOptions>();
  CLI::App* command = app.add_subcommand("trial", "One training of verify, speedup or sweep");
  command->group("");  // not for people
  command->add_option("--config", options->config)->required();
  command->add_option("--result", options->result)->required();
  command->add_flag("--apart", options->apart);
  command->add_flag("--hashes", options->hashes);
  command->add_flag("--evaluated", options->evaluated);
  command->callback([options, &chosen] { chosen = [options] { return run_one(*options); }; });
}

}  // namespace lockstep::cli
