// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/config_options.h"
#include "cli/relaunch.h"
#include "cli/step_watch.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/detail/members.h"
#include "lockstep/comm/membership.h"
#include "lockstep/data/registry.h"
#include "lockstep/models/registry.h"
#include "lockstep/numerics/device.h"
#include "lockstep/report/format.h"
#include "lockstep/run/run_files.h"
#include "lockstep/train/job.h"
#include "lockstep/train/survive.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {
namespace {

struct TrainOptions {
  ConfigOptions config;
  bool resumes = false;  // --resume, with a path or without: then it is the folder of --out
  bool overwrite = false;
  bool forecasts = false;  // --forecast, with a file or without
  std::string profile;     // the file: of `lockstep forecast --save`
};

void note_forecast(const std::string& folder, const std::string& verdict) {
  const auto file = run::Folder{folder}.summary();
  run::Summary summary = run::read_summary(file);
  summary.forecast = verdict;
  run::write_summary(file, summary);
}

// The first asks training to stop after its step, the second ends the process.
void stop_on(int signal) {
  struct sigaction action {};
  action.sa_handler = [](int number) { train::Trainer::request_stop(number); };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  if (now.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
}

void save_on(int signal) {
  struct sigaction action {};
  action.sa_handler = [](int) { train::Trainer::request_save(); };
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

bool holds_run(const std::string& folder) {
  return run::Folder{folder}.holds_run();
}

// The folder of a new run that has no name, made here and by nobody else: others may begin at the same time.
std::string claim_new_folder(const std::string& model) {
  std::error_code error;
  std::filesystem::create_directories("runs", error);
  for (int number = 1; !error; ++number) {
    const std::string folder = number == 1 ? text("runs/", model) : text("runs/", model, "-", number);
    if (std::filesystem::create_directory(folder, error)) return folder;
    if (std::filesystem::exists(folder)) error.clear();  // whatever it is
  }
  fail("train", "no folder can be made in 'runs' (", error.message(), "), expected one: --out FOLDER");
}

// The folder of a new run, made. What it replaces goes when training begins, past all that may be wrong before.
std::string claim_folder(const std::string& folder, const std::string& model, bool replaces) {
  if (folder.empty()) return claim_new_folder(model);
  require(replaces || !holds_run(folder), "train", "folder '", folder,
          "' holds a run already, expected a new one: go on with it (--resume) or replace it (--overwrite)");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, "train", "folder '", folder, "' can't be made (", error.message(), ")");
  return folder;
}

// What was claimed for a training that can't begin goes back; a folder that holds something stays.
class ClaimedFolder {
 public:
  explicit ClaimedFolder(std::string folder) : folder_(std::move(folder)) {}
  ~ClaimedFolder() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove(folder_, ignored);
  }
  ClaimedFolder(const ClaimedFolder&) = delete;
  ClaimedFolder& operator=(const ClaimedFolder&) = delete;

 private:
  std::string folder_;
};

std::string folder_of(const std::string& run) {
  const std::filesystem::path path = run;
  if (path.extension() != ".pt") return run;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

bool is_same_folder(const std::filesystem::path& a, const std::filesystem::path& b) {
  return std::filesystem::weakly_canonical(a / "") == std::filesystem::weakly_canonical(b / "");
}

// The checkpoint to go on with, and its configuration. None where nobody asks for one, or where --out and --resume are
// said together, as by a script that starts a job again and again, of a run that has left no checkpoint yet.
std::optional<run::Checkpoint> find_start(run::Config& config, const std::vector<std::string>& given,
                                          const TrainOptions& options, const comm::Group& group) {
  if (!options.resumes && config.resume.empty()) return std::nullopt;
  const std::string from = config.resume.empty() ? config.out : config.resume;
  require(!from.empty(), "train",
          "--resume without a run, expected its folder: --resume runs/NAME, or --out runs/NAME --resume");
  const run::Folder run{folder_of(from)};
  require(config.out.empty() || is_same_folder(config.out, run.folder), "train", "--resume ", from, " and --out ",
          config.out, " name two folders, expected one: a run goes on in its own (--init ", run.checkpoint().string(),
          " begins another with its weights)");
  const bool may_begin = !config.out.empty() && run.folder == from;
  config.resume.clear();
  const auto find_state = [&] {
    const auto is_there = [](const auto& file) { return std::filesystem::exists(file); };
    return std::ranges::any_of(std::array{run.checkpoint(), run.previous_checkpoint(), run.weights()}, is_there)
               ? "begun"
               : "new";
  };
  if (may_begin && train::from_leader(group, find_state) == "new") return std::nullopt;
  auto start = train::fetch_checkpoint(from, group);
  require(start.has_value(), "train", "folder '", from, "' holds no checkpoint to go on with, expected ",
          run.checkpoint().string());
  config = train::resumed_config(config, given, *start);
  config.out = run.folder.string();
  return start;
}

void greet(const train::Trainer& trainer, const std::optional<run::Checkpoint>& start) {
  const run::Config& config = trainer.config();
  if (!trainer.why_split().empty()) std::printf("%s\n", trainer.why_split().c_str());
  std::printf("%s, into %s\n", trainer.describe().c_str(), config.out.c_str());
  if (start)
    std::printf("going on after step %ld (epoch %ld, batch %ld)\n", static_cast<long>(start->cursor.step),
                static_cast<long>(start->cursor.epoch + 1), static_cast<long>(start->cursor.batch));
  std::fflush(stdout);
}

void part(const train::Outcome& outcome, const run::Config& config, const std::string& forecast) {
  std::string line = text(outcome.cursor.step, " steps in ", report::duration(outcome.seconds));
  if (outcome.last.examples > 0) line += text(", train loss ", report::fixed(outcome.last.train_loss, 4));
  if (outcome.last.test)
    line += text(", test loss ", report::fixed(outcome.last.test->loss, 4), ", test accuracy ",
                 report::fixed(outcome.last.test->accuracy, 4));
  if (outcome.last.test && outcome.last.test->mean_iou)
    line += ", test mIoU " + report::fixed(*outcome.last.test->mean_iou, 4);
  std::printf("%s\n", line.c_str());
  if (!forecast.empty()) {
    std::printf("a step: %s\n", forecast.c_str());
    note_forecast(config.out, forecast);
  }
  if (!outcome.is_whole())
    std::printf("stopped; go on with: lockstep train --resume %s\n", config.out.c_str());
  else
    std::printf("weights in %s/weights.pt, sha256 %s\n", config.out.c_str(), outcome.hash.c_str());
  std::fflush(stdout);
}

// A launcher that starts a failed job again (`lockstep run --restarts`, torchrun) says how often it has.
bool is_restarted() {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return count != nullptr && std::strtol(count, nullptr, 10) > 0;
}

// What the folder holds is of this job.
void go_on_with_own_run(const run::Config& config, TrainOptions& options) {
  if (config.out.empty() || !config.resume.empty()) return;
  options.resumes = true;
  options.overwrite = false;
}

bool is_alone(const run::Config& config, const comm::Group& group) {
  const std::string devices = config.devices.empty() ? comm::usual_devices(group) : config.devices;
  return group.size() == 1 && parse_devices(devices).size() == 1;
}

// What makes this process's trainer, once, or again and again where the job goes on without those that it loses.
class TrainerMaker {
 public:
  TrainerMaker(const TrainOptions& options, run::Config config, std::vector<std::string> given, StepWatch watch)
      : options_(options), config_(std::move(config)), given_(std::move(given)), watch_(std::move(watch)) {}

  /// Reads the data before the others wait for this process, as far as its own options say which.
  void prepare() {
    if (!options_.resumes) task_ = train::make_task(config_);
  }

  /// `has_begun`: others of this job were at work before, and may have left a run in the folder.
  std::unique_ptr<train::Trainer> make(const comm::Group& group, const std::optional<run::Checkpoint>& copy,
                                       bool has_begun) {
    run::Config config = config_;
    TrainOptions options = options_;
    if (has_begun) go_on_with_own_run(config, options);
    leads_ = group.rank() == 0;
    auto start = copy;
    if (copy) {
      config = train::resumed_config(config, given_, *copy);
      config.out = train::folder_of(*copy);
      config.blocks.clear();  // of processes that are not the same any more
      if (config.audit > 0 && is_alone(config, group)) {
        log_warning("train: one device is left, so that gradients are not audited any more");
        config.audit = 0;
      }
    } else {
      start = find_start(config, given_, options, group);
    }
    if (!task_) task_ = train::make_task(config);
    const bool replaces = options.overwrite || (options.resumes && !start);
    const bool unnamed = !start && config.out.empty();
    if (!start)
      config.out = train::from_leader(group, [&] { return claim_folder(config.out, config.model, replaces); });
    const ClaimedFolder claimed(unnamed && leads_ ? config.out : "");
    auto trainer = std::make_unique<train::Trainer>(config, *task_, group, start);
    if (replaces) trainer->overwrite();
    if (leads_ && !copy) greet(*trainer, start);
    if (!copy) watch_.begin(*trainer, group);
    config_of_run_ = trainer->config();
    return trainer;
  }

  bool leads() const { return leads_; }
  std::string verdict() const { return watch_.verdict(); }
  const run::Config& config_of_run() const { return config_of_run_; }

 private:
  const TrainOptions& options_;
  const run::Config config_;
  const std::vector<std::string> given_;
  StepWatch watch_;
  std::optional<train::Task> task_;
  bool leads_ = false;  // until there is a trainer
  run::Config config_of_run_;
};

train::Outcome train_all(TrainerMaker& maker) {
  if (auto membership = comm::Membership::of_this_job()) {
    if (membership->is_newcomer()) {
      maker.prepare();
      membership->say_ready();
    }
    return train::train_surviving(*membership, [&](const auto& group, const auto& copy) {
      return maker.make(group, copy, /*has_begun=*/membership->generation() > 0);
    });
  }
  const comm::Group group = comm::connect();
  const train::Outcome outcome = maker.make(group, std::nullopt, /*has_begun=*/false)->run();
  group.finish();
  return outcome;
}

int train_model(TrainOptions options) {
  std::vector<std::string> given;
  run::Config config = options.config.resolve(given);
  if (is_restarted()) go_on_with_own_run(config, options);
  if (!options.resumes) run::check(config);  // else with what the checkpoint adds
  require(config.lr > 0 || std::ranges::count(given, "lr") == 0, "train",
          "lr is 0, expected it above 0, or none for the optimiser's usual one");
  require(!options.overwrite || (!options.resumes && config.resume.empty()), "train",
          "--resume goes on with a run and --overwrite replaces it, expected one of them");
  StepWatch watch(options.forecasts, options.profile);
  if (!options.resumes && config.resume.empty()) watch.measure(config);  // else a checkpoint knows the recipe
  if (const int gpus = gpus_of_one_process(config.devices); gpus > 1) return relaunch(gpus);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR2}) stop_on(signal);
  save_on(SIGUSR1);
  signal(SIGPIPE, SIG_IGN);  // training is worth more than whoever reads along: lockstep train ... | head
  TrainerMaker maker(options, config, given, std::move(watch));
  try {
    const train::Outcome outcome = train_all(maker);
    if (maker.leads()) part(outcome, maker.config_of_run(), maker.verdict());
    if (outcome.too_few) return comm::members::too_few_exit_code;
    return outcome.signal == 0 ? 0 : 128 + outcome.signal;
  } catch (const train::TrainingError&) {  // all processes know of it, and one of them says it
    if (maker.leads()) throw;
    return 1;
  }
}

}  // namespace

void setup_train(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a network: lockstep train MODEL [OPTIONS]");
  add_config_options(*command, options->config, {"resume"});
  const auto registry = models::builtin();
  std::string models = "models:";
  for (const auto& entry : registry.entries()) models += text("\n  ", entry.name, ": ", entry.description);
  const auto datasets = data::builtin();
  std::string kinds = "data sets:";
  for (const auto& kind : datasets.kinds()) kinds += text("\n  ", kind.usage, ": ", kind.description);
  command->footer(models + "\n\n" + kinds);
  command
      ->add_option("--resume", options->config.config.resume,
                   "Go on with a run: its folder or a checkpoint; default: the folder of --out")
      ->expected(0, 1)
      ->group("What it writes");
  command
      ->add_option("--forecast", options->profile,
                   "Say at the end what a step was forecast to take, and took: by a file of lockstep forecast --save; "
                   "default: by what is remembered, or else measured first")
      ->expected(0, 1)
      ->group("Where it runs");
  command->add_flag("--overwrite", options->overwrite, "Replace the run that --out holds")->group("What it writes");
  command->callback([options, command, &chosen] {
    options->resumes = command->get_option("--resume")->count() > 0;
    options->forecasts = command->get_option("--forecast")->count() > 0;
    chosen = [options] { return train_model(*options); };
  });
}

}  // namespace lockstep::cli
