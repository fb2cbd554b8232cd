// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/trainer.h"

#include <atomic>
#include <future>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/connect.h"
#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/parallel/detail/surviving_work.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/run/run_files.h"
#include "lockstep/run/weights.h"
#include "lockstep/train/job.h"
#include "train/session/auto_split.h"
#include "train/session/plan.h"
#include "train/session/recorder.h"
#include "train/session/session.h"

namespace lockstep::train {
namespace {

// All that a signal handler can reach.
std::atomic<int> stop_signal{0};
std::atomic<int> save_signals{0};

constexpr int64_t kAxes = 3;  // of clouds

std::vector<std::string> recipe_names() {
  run::Config any;
  std::vector<std::string> names;
  for (const run::Field& field : run::fields_of(any))
    if (field.recipe && std::string_view(field.name) != "epochs" && std::string_view(field.name) != "steps")
      names.emplace_back(field.name);
  return names;
}

void warn_of_fingerprint(const Plan& plan, const run::Checkpoint& checkpoint) {
  const auto here = Fingerprint::of(parse_devices(plan.config.devices)[0]);
  const auto difference = here.difference(Fingerprint(checkpoint.fingerprint));
  if (!difference.empty() && plan.team.group().rank() == 0)
    log_warning("resume: ", difference, "; the run goes on, and its bits are not those of an uninterrupted one");
}

std::map<std::string, std::string> settings_of(const run::Config& config) {
  std::map<std::string, std::string> out;
  for (const auto& setting : config.set) {
    const size_t equals = setting.find('=');
    require(equals != std::string::npos && equals > 0, "train", "set is '", setting,
            "', expected NAME=VALUE, as in --set width=0.5");
    out[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return out;
}

// A data set need not have a test part.
std::shared_ptr<const data::Dataset> limited(std::shared_ptr<const data::Dataset> dataset, int64_t count) {
  return count > 0 && count < dataset->size() ? data::first_of(std::move(dataset), count) : dataset;
}

}  // namespace

struct Trainer::Impl {
  Plan plan;
  std::optional<run::Checkpoint> start;
  std::optional<run::Tensors> initial{};
  std::function<void(const StepReport&, const models::Classifier&)> on_step{};
  std::function<void(const StepReport&, const models::StateDict&)> on_weights{};
  std::function<void(const EpochReport&)> on_epoch{};
  std::optional<Copies> copies{};
  std::vector<std::string> events{};
  bool overwrites = false;
  bool has_run = false;
};

Task make_task(const run::Config& config) {
  check(config);
  const data::DatasetOptions options{.image_size = config.image_size, .seed = config.seed, .voxel = config.voxel};
  Task task;
  task.model = config.model;
  const auto open = [&](data::Subset subset, int64_t examples) {
    return limited(data::open_dataset(config.data, subset, options), examples);
  };
  // Some data sets have tables of a gigabyte, which both parts read.
  auto test = std::async(std::launch::async, open, data::Subset::test, config.test_examples);
  task.train = open(data::Subset::train, config.examples);
  task.test = test.get();
  task.network = make_network(config, task.train->info());
  return task;
}

MakeNetwork make_network(const run::Config& config, const data::DatasetInfo& info) {
  models::Options made{.input = info.input_shape,
                       .dimension = info.voxel > 0 ? kAxes : 0,
                       .classes = info.classes,
                       .settings = settings_of(config)};
  if (!run::begins_with_file(config)) made.init = config.init;
  auto registry = models::builtin();
  made = registry.complete(config.model, made);
  const auto labels = registry.find(config.model).labels;
  require(labels != models::Labels::clouds || info.whole_clouds, "train", config.model,
          " gives a whole cloud one class, and each point of ", info.name,
          " has its own, expected a network that labels points, such as minkunet34c");
  require(labels != models::Labels::points || !info.whole_clouds, "train", config.model,
          " gives each point a class, and a whole cloud of ", info.name,
          " has one, expected a network that labels clouds, such as minkresnet14");
  return [registry = std::move(registry), made, name = config.model] { return registry.make(name, made); };
}

namespace {

// Of the processes that load them: the leader, which shares them out, and others that hold a part and have the same
// file. A mistake is known before the run's folder is touched.
std::optional<run::Tensors> initial_weights(const Plan& plan) {
  if (!run::begins_with_file(plan.config)) return std::nullopt;
  run::FoundWeights mine;
  const std::string checksums = from_leader(plan.team.group(), [&] {
    try {
      mine = run::find_weights(plan.config.init);
      UnfilledWeights unfilled;
      const UnfilledWeights::Scope waiting(unfilled);
      models::load_state_dict(*probe(plan.task, plan.config.seed), mine.weights, plan.config.init);
    } catch (const Error& error) {
      fail("train", "the weights of '", plan.config.init, "' do not fit: ", error.what());
    }
    return mine.checksums;
  });
  if (plan.team.group().rank() == 0) return std::move(mine.weights);
  if (!plan.team.processes_hold_parts()) return std::nullopt;
  auto same = read_same(checksums, [&] { return run::find_weights(plan.config.init); });
  return same ? std::optional(std::move(same->weights)) : std::nullopt;
}

void check_folder(const Plan& plan) {
  from_leader(plan.team.group(), [&] {
    const run::Folder folder{plan.config.out};
    require(plan.config.out.empty() || !folder.holds_run(), "train", "folder '", plan.config.out,
            "' holds a run already, expected a new one: go on with it (resume) or replace it (overwrite)");
    return "";
  });
}

}  // namespace

Evaluation evaluate(const run::Config& config, const Task& task, const run::Tensors& weights, const comm::Group& group,
                    const Figures& figures) {
  const auto data = task.test != nullptr ? task.test : task.train;
  run::Config wanted = config;
  if (wanted.replicas > 0) wanted.replicas = std::min(wanted.replicas, data->size());
  // How training cut its batches up is no concern of whoever takes each example once, and might not suit this data.
  wanted.batch = wanted.replicas > 0 ? wanted.replicas : data->size();
  wanted.accumulate = 1;
  wanted.tail = "exact";
  wanted.blocks.clear();
  wanted.audit = 0;
  if (is_auto_split(wanted.split)) wanted.split = "data";  // what memory limits is kept for a backward pass
  Task alone = task;
  alone.train = data;
  const Plan plan = make_plan(wanted, alone, group);
  auto options = plan.evaluation_options();
  options.figures = figures;
  Evaluator evaluator(data, options);
  Evaluation out;
  // Each process of a part takes its own weights from the same file.
  const bool in_parts = plan.team.processes_hold_parts();
  const std::string source = in_parts ? "weights " + run::hash_of(weights) : "";
  plan.team.run([&](parallel::Replica& me) {
    const auto made = plan.task.network();
    if (in_parts ? me.number() == plan.team.block().begin : me.number() == 0)
      models::load_state_dict(*made, weights, source);
    const auto network = me.share(made);
    const auto found = evaluator.run(me, *network);
    if (me.number() == plan.team.block().begin) out = found;
  });
  return out;
}

Trainer::Trainer(const run::Config& config, Task task) : Trainer(config, std::move(task), comm::connect()) {}

Trainer::Trainer(const run::Config& config, Task task, const comm::Group& group, std::optional<run::Checkpoint> start) {
  if (!start && !config.resume.empty()) {
    start = fetch_checkpoint(config.resume, group);
    require(start.has_value(), "train", "'", config.resume,
            "' holds no checkpoint to go on with, expected a run's folder");
  }
  impl_ = std::make_unique<Impl>(Impl{.plan = make_plan(config, std::move(task), group), .start = std::move(start)});
  if (impl_->start) {
    resumed_config(impl_->plan.config, recipe_names(), *impl_->start);
    warn_of_fingerprint(impl_->plan, *impl_->start);
  } else {
    impl_->initial = initial_weights(impl_->plan);
  }
}

Trainer::~Trainer() = default;

const run::Config& Trainer::config() const {
  return impl_->plan.config;
}

std::string Trainer::describe() const {
  const Plan& plan = impl_->plan;
  return text(plan.task.model, " on ", plan.task.train->info().name, ": ", plan.team.describe(), ", batch ",
              plan.config.batch);
}

const std::string& Trainer::why_split() const {
  return impl_->plan.why_split;
}

int64_t Trainer::bytes_sent() const {
  return impl_->plan.team.bytes_sent();
}

void Trainer::on_step(std::function<void(const StepReport&, const models::Classifier&)> callback) {
  impl_->on_step = std::move(callback);
}
void Trainer::on_weights(std::function<void(const StepReport&, const models::StateDict&)> callback) {
  impl_->on_weights = std::move(callback);
}
void Trainer::on_epoch(std::function<void(const EpochReport&)> callback) {
  impl_->on_epoch = std::move(callback);
}

void Trainer::overwrite() {
  impl_->overwrites = true;
}

void Trainer::request_stop(int signal) noexcept {
  stop_signal = signal;
}

void Trainer::request_save() noexcept {
  ++save_signals;
}

void Trainer::survive(comm::Membership& membership) {
  impl_->copies.emplace(Copies{.membership = membership});
}

void Trainer::say_event(const std::string& event) {
  impl_->events.push_back(event);
}

std::optional<run::Checkpoint> Trainer::newest_copy() const {
  return impl_->copies ? impl_->copies->newest : std::nullopt;
}

int64_t Trainer::steps_done() const {
  return impl_->copies ? impl_->copies->step : 0;
}

Outcome Trainer::run() {
  require(!impl_->has_run, "Trainer::run", "it has run already, expected one run a trainer");
  impl_->has_run = true;
  Plan& plan = impl_->plan;
  if (!impl_->start && !impl_->overwrites) check_folder(plan);
  const bool writes = plan.team.group().rank() == 0;
  data::Loader loader(plan.task.train, plan.order(), plan.loader_options());
  std::optional<Evaluator> evaluator;
  if (plan.task.test != nullptr) evaluator.emplace(plan.task.test, plan.evaluation_options());
  std::optional<data::Ledger> ledger;
  if (plan.config.check_data) ledger.emplace(plan.task.train->size());
  std::optional<Recorder> recorder;
  if (writes) recorder.emplace(plan, impl_->start, impl_->on_epoch);
  for (const auto& event : impl_->events)
    if (recorder) recorder->event(event);
  Work work{.plan = plan,
            .start = impl_->start,
            .initial = impl_->initial,
            .loader = loader,
            .evaluator = evaluator ? &*evaluator : nullptr,
            .ledger = ledger ? &*ledger : nullptr,
            .recorder = recorder ? &*recorder : nullptr,
            .stop = stop_signal,
            .save = save_signals,
            .copies = impl_->copies ? &*impl_->copies : nullptr,
            .on_step = impl_->on_step,
            .on_weights = impl_->on_weights,
            .mutex = {},
            .failure = {},
            .trouble = {},
            .outcome = {}};
  try {
    plan.team.run([&](parallel::Replica& me) { Session(work, me).run(); });
    stop_signal = 0;
    if (recorder) recorder->finish_saving();
    {
      const Lock lock(work.mutex);
      if (work.failure) std::rethrow_exception(work.failure);
      if (!work.trouble.empty()) throw TrainingError(text("train: ", work.trouble, recorder ? recorder->kept() : ""));
    }
    if (!writes || work.outcome.regroups) return work.outcome;
    work.outcome.hash = run::hash_of(work.outcome.weights);
    recorder->finish(work.outcome);
    return work.outcome;
  } catch (const std::exception& error) {
    if (recorder && !(impl_->copies && parallel::is_loss(error))) recorder->abandon(error.what());
    throw;
  }
}

}  // namespace lockstep::train
