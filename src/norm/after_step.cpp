// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/detail/after_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>
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
  // On a GPU one replica's layers wait, too: for all of them the same few launches do.
  const bool waits = rows.is_cuda() || (peers != nullptr && peers->replicas() > 1);
  if (peers != nullptr && waits && after_step != nullptr) return after_step->add(rows, layer);
  move_running_statistics(layer.running_mean, layer.running_var,
                          mean_of_shares(exchange_sums(peers, rows.to(at::kDouble))), layer.momentum);
}

void AfterStep::add(at::Tensor rows, const Layer& layer) {
  entries_.push_back({std::move(rows), layer.running_mean, layer.running_var, layer.momentum});
}

// Those that move in one go, to the bits of one after the other: a layer that is used twice moves twice.
size_t AfterStep::end_of_run(const std::vector<Entry>& entries, size_t begin) {
  const auto movable = [&](const Entry& entry) {
    return entry.mean.defined() && entry.variance.defined() && entry.momentum == entries[begin].momentum &&
           entry.mean.scalar_type() == entries[begin].mean.scalar_type() &&
           entry.variance.scalar_type() == entries[begin].variance.scalar_type();
  };
  size_t end = begin + 1;
  if (!movable(entries[begin])) return end;
  const auto comes_again = [&](const Entry& entry) {
    return std::any_of(
        entries.begin() + static_cast<std::ptrdiff_t>(begin), entries.begin() + static_cast<std::ptrdiff_t>(end),
        [&](const Entry& other) { return other.mean.is_same(entry.mean) || other.variance.is_same(entry.variance); });
  };
  while (end < entries.size() && movable(entries[end]) && !comes_again(entries[end])) ++end;
  return end;
}

void AfterStep::move(std::span<const Entry> entries, const at::Tensor& moments) {
  if (entries.size() == 1)
    return move_running_statistics(entries[0].mean, entries[0].variance, moments, entries[0].momentum);
  std::vector<at::Tensor> means, variances;
  std::vector<int64_t> channels;
  for (const Entry& entry : entries) {
    means.push_back(entry.mean);
    variances.push_back(entry.variance);
    channels.push_back(entry.rows.size(1));
  }
  const at::Tensor mean = at::cat(means), variance = at::cat(variances);
  move_running_statistics(mean, variance, moments, entries[0].momentum);
  at::_foreach_copy_(means, mean.split_with_sizes(channels));
  at::_foreach_copy_(variances, variance.split_with_sizes(channels));
}

void AfterStep::run(Peers& peers) {
  if (entries_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto entries = std::exchange(entries_, {});
  std::vector<at::Tensor> rows;
  for (const Entry& entry : entries) rows.push_back(entry.rows);
  const at::Tensor moments = mean_of_shares(exchange_sums(&peers, at::cat(rows, 1).to(at::kDouble)));
  int64_t channel = 0;
  for (size_t begin = 0; begin < entries.size();) {
    const auto together = std::span(entries).subspan(begin, end_of_run(entries, begin) - begin);
    int64_t channels = 0;
    for (const Entry& entry : together) channels += entry.rows.size(1);
    move(together, moments.narrow(1, channel, channels));
    channel += channels;
    begin += together.size();
  }
}

}  // namespace lockstep::norm
