// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/profile.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "lockstep/data/share_costs.h"
#include "lockstep/parallel/choose_split.h"
#include "lockstep/parallel/rule.h"
#include "train/profile/passes.h"
#include "train/session/plan.h"

namespace lockstep::train {
namespace {

constexpr int kMeasurements = 5;

// On one device, dividing nothing.
Plan plan_of(const run::Config& config, const Task& task) {
  run::Config alone = config;
  alone.devices = "cpu:1";
  alone.split = "data";
  alone.blocks.clear();
  return make_plan(alone, task, comm::Group());
}

// As a team lays its weights out (ShareOptions).
void lay_out(const models::Classifier& network, data::Layout layout) {
  if (layout != data::Layout::channels_last) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : network.parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace

PassProfile profile_passes(const run::Config& config, const Task& task) {
  const Plan plan = plan_of(config, task);
  const auto network = probe(plan.task, plan.config.seed);
  lay_out(*network, plan.layout);
  data::LoaderOptions options = plan.loader_options();
  options.block = Interval{0, 1};
  options.workers = 0;
  data::Loader loader(plan.task.train, plan.order(), options);
  const data::Batch batch = loader.next(0);
  PassProfile out{.cost = cost_of_passes(*network, batch, plan.config, plan.precision, kMeasurements, /*as_one=*/true),
                  .examples = plan.order().size(),
                  .updates = plan.updates,
                  .states = static_cast<int64_t>(parallel::state_names(plan.rule()).size())};
  out.has_stages = out.cost.stages.size() > 1;
  if (plan.config.slices > 1) out.cost.meeting = parallel::measure_meeting();
  for (const at::Tensor& buffer : network->buffers()) out.buffers_bytes += static_cast<int64_t>(buffer.nbytes());
  return out;
}

std::vector<std::vector<int64_t>> coming_shares(const run::Config& config, const Task& task, int64_t batch,
                                                int64_t replicas, int64_t batches) {
  run::Config one = config;
  one.batch = batch;
  one.replicas = replicas;
  one.scale_batch = false;
  const Plan plan = plan_of(one, task);
  data::LoaderOptions options = plan.loader_options();
  options.block.reset();
  return data::share_costs(plan.task.train, plan.order(), options, std::min(batches, plan.batches_per_epoch));
}

}  // namespace lockstep::train
