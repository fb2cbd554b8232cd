// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/detail/after_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <utility>

#include "lockstep/context/detail/context.h"
#include "lockstep/norm/detail/batch_statistics.h"

namespace lockstep::norm {
namespace {

/// The mean over replicas of their batches' statistics, as moments, of the sums of their rows.
at::Tensor mean_of_shares(const at::Tensor& sums) {
  // A count of two makes the unbiased variance the sum of squares itself; a count of one says that there is none.
  return at::stack(
      {sums[0].clamp_max(1) + sums[2].clamp_max(1), sums[1] / sums[0].clamp_min(1), sums[3] / sums[2].clamp_min(1)});
}

}  // namespace

at::Tensor rows_of_share(const at::Tensor& moments) {
  const at::Tensor some = (moments[0] > 0).to(at::kDouble), several = (moments[0] > 1).to(at::kDouble);
  const at::Tensor variance = moments[2] / (moments[0] - 1).clamp_min(1);
  return at::stack({some, moments[1] * some, several, variance * several});
}

void move_to_mean_of_shares(Peers* peers, const at::Tensor& rows, const Layer& layer) {
  AfterStep* const after_step = Context::current().after_step;
  if (peers != nullptr && peers->replicas() > 1 && after_step != nullptr) return after_step->add(rows, layer);
  move_running_statistics(layer.running_mean, layer.running_var, mean_of_shares(exchange_sums(peers, rows)),
                          layer.momentum);
}

void AfterStep::add(at::Tensor rows, const Layer& layer) {
  entries_.push_back({std::move(rows), layer.running_mean, layer.running_var, layer.momentum});
}

void AfterStep::run(Peers& peers) {
  if (entries_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto entries = std::exchange(entries_, {});
  std::vector<at::Tensor> rows;
  for (const Entry& entry : entries) rows.push_back(entry.rows);
  const at::Tensor moments = mean_of_shares(exchange_sums(&peers, at::cat(rows, 1)));
  int64_t channel = 0;
  for (const Entry& entry : entries) {
    const int64_t channels = entry.rows.size(1);
    move_running_statistics(entry.mean, entry.variance, moments.narrow(1, channel, channels), entry.momentum);
    channel += channels;
  }
}

}  // namespace lockstep::norm
