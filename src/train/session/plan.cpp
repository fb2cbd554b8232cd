// SPDX-License-Identifier: Apache-2.0
#include "train/session/plan.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/parallel/detail/broadcast_text.h"
#include "train/session/auto_split.h"

namespace lockstep::train {
namespace {

constexpr int64_t kEvaluateBatch = 1024;

template <class... Kinds>
bool has_any(const torch::nn::Module& network) {
  return std::ranges::any_of(network.modules(),
                             [](const auto& module) { return (... || (module->template as<Kinds>() != nullptr)); });
}

data::Layout layout_of(const run::Config& config, const models::Classifier& network) {
  using namespace torch::nn;
  const bool last =
      config.memory_format == "channels-last" ||
      (config.memory_format == "auto" && has_any<Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d>(network));
  return last ? data::Layout::channels_last : data::Layout::contiguous;
}

Precision precision_of(const run::Config& config) {
  return config.amp == "bf16" ? Precision::bf16 : config.amp == "fp16" ? Precision::fp16 : Precision::full;
}

data::Order order_of(const run::Config& config, const Task& task) {
  if (task.order) return *task.order;
  return config.order == "sequential" ? data::Order::sequential(task.train->size())
                                      : data::Order::shuffled(task.train->size(), config.seed);
}

parallel::ScaleRule scale_rule(const std::string& name) {
  return name == "linear" ? parallel::ScaleRule::linear
         : name == "sqrt" ? parallel::ScaleRule::square_root
                          : parallel::ScaleRule::none;
}

void settle_batch(run::Config& config, const Task& task, int64_t devices, bool cuda, const comm::Group& group) {
  const bool clouds = task.train->info().voxel > 0;
  if (config.batch == 0) config.batch = run::usual_batch(clouds);
  config.lr *= parallel::scale_with(static_cast<double>(devices), scale_rule(config.scale_lr));
  config.scale_lr = "none";
  if (config.scale_batch) config.batch *= devices;
  config.scale_batch = false;
  if (config.replicas == 0)
    config.replicas = std::max<int64_t>(group.size(), run::default_replicas(cuda, devices, config.batch));
  if (config.evaluate_batch == 0) config.evaluate_batch = clouds ? config.replicas : kEvaluateBatch;
}

void check_sizes(const run::Config& config, const Task& task) {
  require(task.train->size() >= config.replicas, "train", "the data set has ", task.train->size(), " examples for ",
          config.replicas, " replicas, expected one for each at least: lower --replicas");
  require(config.batch >= config.replicas, "train", "batch is ", config.batch, ", less than the ", config.replicas,
          " replicas that it is divided over: raise --batch or lower --replicas");
}

void check_classes(const Task& task) {
  if (task.test == nullptr) return;
  const auto &train = task.train->info(), &test = task.test->info();
  require(train.classes == test.classes && train.input_shape == test.input_shape, "train", "the training set has ",
          train.classes, " classes and inputs ", at::IntArrayRef(train.input_shape), ", the test set ", test.classes,
          " and ", at::IntArrayRef(test.input_shape), ", expected the same");
}

// A GPU leaves them idle, and waits for its data soon.
int64_t cores_of_a_process(const comm::Group& group) {
  return cpu_info().cores / (group.size() > 1 ? comm::read_environment().local_size : 1);
}

}  // namespace

std::shared_ptr<models::Classifier> probe(const Task& task, uint64_t seed) {
  const RandomScope draws(RandomKey{seed});
  auto network = task.network();
  require(network != nullptr, "Trainer", "the task's network is empty, expected one");
  return network;
}

void settle_rule(run::Config& config) {
  const parallel::Rule usual = parallel::make_rule(config.optimizer);
  const auto settle = [&](double& number, const char* name) {
    if (number < 0) number = parallel::number(usual, name).value_or(0);
  };
  if (config.lr == 0) config.lr = parallel::usual_learning_rate(usual);
  settle(config.weight_decay, "weight_decay");
  settle(config.momentum, "momentum");
  settle(config.eps, "eps");
}

run::Config config_of(const run::Checkpoint& checkpoint) {
  run::Config config;
  run::read_toml(config, checkpoint.config, "the checkpoint's configuration");
  // Older ones left the rule open, and their 0 was the optimiser's usual number.
  if (config.weight_decay < 0)
    for (double* number : {&config.momentum, &config.eps})
      if (*number == 0) *number = -1;
  settle_rule(config);
  return config;
}

std::string from_leader(const comm::Group& group, const std::function<std::string()>& find) {
  std::string said;
  if (group.rank() == 0) {
    try {
      said = text("+", find());
    } catch (const Error& error) {
      said = text("-", error.what());
    }
  }
  if (group.size() > 1) said = parallel::broadcast_text(group, said, 0);
  if (said[0] == '-') throw Error(said.substr(1));
  return said.substr(1);
}

int64_t sum_over(const comm::Group& group, int64_t mine) {
  const auto sum = at::full({1}, mine, at::kLong);
  group.all_reduce(sum).wait();
  return sum.item<int64_t>();
}

Plan make_plan(const run::Config& given, Task task, const comm::Group& group) {
  check(given);
  require(task.train != nullptr && task.network != nullptr, "Trainer",
          "the task has no training set or no network, expected both");
  check_classes(task);
  run::Config config = given;
  if (config.devices.empty()) config.devices = comm::usual_devices(group);
  auto mine = parse_devices(config.devices);
  if (mine[0].kind == Device::Kind::cuda && mine.size() > 1 && group.size() > 1) {
    mine = {mine[comm::read_environment().local_rank % mine.size()]};  // one GPU a process
    config.devices = mine[0].to_string();
  }
  const bool cuda = mine[0].kind == Device::Kind::cuda;
  const int64_t devices = sum_over(group, static_cast<int64_t>(mine.size()));
  settle_rule(config);
  if (config.workers < 0) config.workers = cuda ? std::clamp<int64_t>(cores_of_a_process(group), 1, 8) : 1;
  settle_batch(config, task, devices, cuda, group);
  auto transforms = data::Transforms::parse(config.augment);
  const auto& list = transforms.list();
  if (std::ranges::any_of(list, [](const auto& t) { return std::holds_alternative<data::Normalize>(t); }))
    transforms = transforms.with(task.train->normalization());
  config.augment = transforms.empty() ? "none" : transforms.to_string();
  // Nobody asks this network for its values, but where process 0 chooses a split by its steps.
  UnfilledWeights unfilled;
  std::optional<UnfilledWeights::Scope> waiting;
  if (!is_auto_split(config.split) || group.rank() != 0) waiting.emplace(unfilled);
  const auto network = probe(task, config.seed);
  check_sizes(config, task);
  const data::Layout layout = layout_of(config, *network);
  const Precision precision = precision_of(config);
  std::string why_split;
  if (is_auto_split(config.split)) {
    require(!cuda, "train", "--split ", config.split, " is for threads on a CPU, expected --split data");
    const auto first_batch = [&] {
      data::Loader loader(task.train, order_of(config, task),
                          {.batch = config.batch,
                           .replicas = config.replicas,
                           .block = Interval{0, 1},
                           .tail = data::parse_tail(config.tail),
                           .transforms = transforms,
                           .seed = config.seed,
                           .layout = layout,
                           .workers = 0,
                           .cache = config.cache});
      return loader.next(0);
    };
    const auto threads = static_cast<int64_t>(mine.size());
    std::tie(config.split, why_split) =
        choose_split(config.split, *network, first_batch, config, precision, threads, group);
  }
  auto team = parallel::Team::create({.replicas = config.replicas,
                                      .devices = config.devices,
                                      .group = group,
                                      .blocks = config.blocks,
                                      .seed = config.seed,
                                      .order = comm::parse_order(config.reduce),
                                      .slices = config.slices,
                                      .split = parallel::parse_split(config.split),
                                      .audit = config.audit});
  // Times are those of the part that takes longest, so they are divided over one part's devices.
  const int64_t parts = team.processes_hold_parts() ? parallel::parse_split(config.split).parts : 1;
  int64_t parameters = 0;
  for (const auto& parameter : network->parameters()) parameters += parameter.requires_grad() ? parameter.numel() : 0;
  using namespace torch::nn;
  Plan plan{.config = config,
            .task = std::move(task),
            .team = team,
            .devices = devices,
            .devices_used = sum_over(group, std::min(static_cast<int64_t>(mine.size()), team.block().size())) / parts,
            .transforms = transforms,
            .layout = layout,
            .cuda = cuda,
            .precision = precision,
            .has_batch_norms = has_any<BatchNorm1d, BatchNorm2d, BatchNorm3d>(*network),
            .parameters = parameters,
            .batches_per_epoch = 0,
            .updates_per_epoch = 0,
            .updates = 0,
            .why_split = why_split};
  parallel::check(plan.rule());
  const int64_t positions = plan.order().size();
  plan.batches_per_epoch =
      config.tail == "drop_last" ? positions / config.batch : (positions + config.batch - 1) / config.batch;
  require(plan.batches_per_epoch > 0, "train", "batch is ", config.batch, " of ", positions,
          " examples, and drop_last leaves no batch: lower --batch");
  plan.updates_per_epoch = (plan.batches_per_epoch + config.accumulate - 1) / config.accumulate;
  plan.updates = config.epochs > 0 ? config.epochs * plan.updates_per_epoch : config.steps;
  if (config.steps > 0) plan.updates = std::min(plan.updates, config.steps);
  return plan;
}

data::LoaderOptions Plan::loader_options() const {
  return {.batch = config.batch,
          .replicas = config.replicas,
          .block = team.block(),
          .tail = data::parse_tail(config.tail),
          .transforms = transforms,
          .seed = config.seed,
          .layout = layout,
          .inputs = team.holds_first_part(),
          .bytes = cuda,
          .workers = static_cast<int>(config.workers),
          .cache = config.cache};
}

EvaluationOptions Plan::evaluation_options() const {
  constexpr int64_t kMostClasses = 100;  // a matrix of more is of no use to anybody
  return {
      .batch = std::max(config.evaluate_batch, config.replicas),
      .replicas = config.replicas,
      .block = team.block(),
      .transforms = transforms,
      .layout = layout,
      .inputs = team.holds_first_part(),
      .bytes = cuda,
      .precision = precision,
      .workers = static_cast<int>(config.workers),
      .cache = config.cache,
      .figures = {.confusion = task.train->info().classes <= kMostClasses && task.train->info().target_shape.empty()}};
}

data::Order Plan::order() const {
  return order_of(config, task);
}

double Plan::epochs(const run::TrainingCursor& cursor) const {
  return static_cast<double>(cursor.epoch) + static_cast<double>(cursor.batch) / static_cast<double>(batches_per_epoch);
}

parallel::Rule rule_of(const run::Config& config) {
  parallel::Rule rule = parallel::make_rule(config.optimizer);
  for (const auto& [name, value] : {std::pair{"lr", config.lr},
                                    {"momentum", config.momentum},
                                    {"nesterov", static_cast<double>(config.nesterov)},
                                    {"weight_decay", config.weight_decay},
                                    {"beta1", config.beta1},
                                    {"beta2", config.beta2},
                                    {"eps", config.eps}})
    parallel::set_number(rule, name, value);
  return rule;
}

parallel::Rule Plan::rule() const {
  return rule_of(config);
}

parallel::OptimizerOptions Plan::optimizer_options() const {
  return {.clip_norm = config.clip,
          .clip_value = config.clip_value,
          .initial_scale = precision == Precision::fp16 ? 65536.0 : 0};
}

parallel::Schedule Plan::schedule() const {
  const auto steps = [&](double epochs) {
    return static_cast<int64_t>(std::llround(epochs * static_cast<double>(updates_per_epoch)));
  };
  const int64_t warmup = steps(config.warmup);
  const int64_t rest = std::max<int64_t>(1, updates - warmup);
  parallel::Schedule after = parallel::constant();
  if (config.schedule == "cosine") after = parallel::cosine(rest, config.least);
  if (config.schedule == "polynomial") after = parallel::polynomial(rest, config.power, config.least);
  if (config.schedule == "step")
    after = parallel::step_decay(std::max<int64_t>(1, steps(config.decay_every)), config.gamma);
  if (config.schedule == "multi-step") {
    std::vector<int64_t> milestones;
    // They count from the start of the run, warm-up included.
    for (const double epoch : config.milestones) milestones.push_back(std::max<int64_t>(0, steps(epoch) - warmup));
    after = parallel::multi_step(milestones, config.gamma);
  }
  return warmup > 0 ? parallel::warm_up(warmup, after) : after;
}

}  // namespace lockstep::train
