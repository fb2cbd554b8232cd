// SPDX-License-Identifier: Apache-2.0
#include "train/profile/passes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"
#include "train/input.h"
#include "train/loss.h"
#include "train/precision.h"

namespace lockstep::train {
namespace {

at::Tensor loss_of(models::Classifier& network, const data::Batch& batch, Precision precision) {
  at::Tensor logits;
  {
    const PrecisionScope scope(precision, at::kCPU);
    logits = network.forward(input_of(batch, at::kCPU));
  }
  return sum_of_losses(logits, batch.targets, /*smoothing=*/0);
}

/// A network that can't be cut.
struct OneStage : Staged {
  std::vector<Stage> stages() override {
    return {Stage("network", [](const at::Tensor& x) { return x; })};
  }
};

double seconds_of(const parallel::StepCost& cost) {
  double sum = 0;
  for (const auto& stage : cost.stages) sum += stage.seconds();
  return sum;
}

bool can_be_cut(models::Classifier& network) {
  try {
    return !network.stages().empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

parallel::StepCost cost_of_passes(models::Classifier& network, const data::Batch& batch, const run::Config& config,
                                  Precision precision, int times, bool as_one) {
  OneStage one;
  Staged& staged = as_one && !can_be_cut(network) ? static_cast<Staged&>(one) : network;
  std::vector<parallel::StepCost> measured;
  for (int time = 0; time < times; ++time)
    measured.push_back(parallel::measure_passes(network, staged, config.slices, config.seed,
                                                [&] { return loss_of(network, batch, precision); }));
  std::ranges::sort(measured, {}, seconds_of);
  return measured[measured.size() / 2];
}

}  // namespace lockstep::train
