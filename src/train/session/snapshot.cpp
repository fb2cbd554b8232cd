// SPDX-License-Identifier: Apache-2.0
#include "train/session/snapshot.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "lockstep/archive/detail/disk_copy.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/flat.h"

namespace lockstep::train {
namespace {

archive::Value::List numbers(const Sums& sums) {
  return {{sums.loss}, {sums.right}, {sums.examples}};
}

Sums sums_of(const archive::Value& value) {
  const auto& list = value.as<archive::Value::List>("sums");
  require(list.size() == 3, "load_checkpoint", "sums are ", list.size(), " numbers, expected 3");
  return {.loss = list[0].as<double>("loss"),
          .right = list[1].as<double>("right"),
          .examples = list[2].as<double>("examples")};
}

}  // namespace

run::Checkpoint snapshot(const Plan& plan, const run::Tensors& weights, const run::Tensors& optimizer,
                         const run::TrainingCursor& cursor) {
  run::Checkpoint out;
  out.model = plan.task.model;
  for (const auto& [name, tensor] : weights) out.weights[name] = kept_copy(tensor);
  out.optimizer = optimizer;
  out.cursor = cursor;
  out.seed = plan.config.seed;
  out.replicas = plan.config.replicas;
  out.config = run::to_toml(plan.config);
  out.data = plan.task.train->info();
  out.fingerprint = Fingerprint::of(parse_devices(plan.config.devices)[0]).items();
  return out;
}

void restore_buffers(const models::Classifier& network, const run::Checkpoint& checkpoint, int64_t number) {
  const at::NoGradGuard no_grad;
  for (const auto& buffer : network.named_buffers())
    if (const auto found = checkpoint.buffers.find(buffer.key()); found != checkpoint.buffers.end()) {
      require(found->second.size(0) > number, "resume", "the checkpoint has '", found->first, "' of ",
              found->second.size(0), " replicas, expected more than ", number);
      at::Tensor(buffer.value()).copy_(found->second[number]);
    }
}

archive::Value::Dict write_figures(const FiguresSoFar& figures) {
  archive::Value::Dict out{{"epoch", {numbers(figures.epoch)}},  {"line", {numbers(figures.line)}},
                           {"seconds", {figures.seconds}},       {"line_seconds", {figures.line_seconds}},
                           {"one_recipe", {figures.one_recipe}}, {"test_due", {figures.test_due}}};
  if (figures.ledger.defined()) out.push_back({"ledger", {figures.ledger}});
  return out;
}

FiguresSoFar read_figures(const archive::Value::Dict& extra) {
  const archive::Value value{extra};
  FiguresSoFar out{.epoch = sums_of(value.at("epoch")), .line = sums_of(value.at("line")), .ledger = {}};
  out.seconds = value.at("seconds").as<double>("seconds");
  // Older checkpoints have none of these.
  if (const archive::Value* seconds = value.find("line_seconds"))
    out.line_seconds = seconds->as<double>("line_seconds");
  if (const archive::Value* one = value.find("one_recipe")) out.one_recipe = one->as<bool>("one_recipe");
  if (const archive::Value* due = value.find("test_due")) out.test_due = due->as<bool>("test_due");
  if (const archive::Value* ledger = value.find("ledger")) out.ledger = ledger->as<at::Tensor>("ledger");
  return out;
}

bool is_finite(const run::Tensors& tensors) {
  return std::ranges::all_of(tensors, [](const auto& item) {
    const bool finite = !item.second.is_floating_point() || item.second.isfinite().all().template item<bool>();
    archive::let_go(item.second);
    return finite;
  });
}

}  // namespace lockstep::train
