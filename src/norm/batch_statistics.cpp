// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/detail/batch_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/row_kernels.h"
#include "lockstep/numerics/tree.h"
#include "norm/channel_parts.h"

namespace lockstep::norm {
namespace {

/// Merges the moments of two batches into the first: rows of `channels` values.
void merge_into(std::span<double> into, std::span<const double> from, size_t channels) {
  for (size_t c = 0; c < channels; ++c) {
    const double a = into[c], b = from[c];
    if (b == 0) continue;
    const double delta = from[channels + c] - into[channels + c];
    if (a == 0) {  // exactly the other batch's: an empty share changes no bit
      for (size_t row = 0; row < 3; ++row) into[row * channels + c] = from[row * channels + c];
      continue;
    }
    into[c] = a + b;
    into[channels + c] += delta * (b / (a + b));
    into[2 * channels + c] += from[2 * channels + c] + delta * delta * (a * b / (a + b));
  }
}

at::Tensor merge_on_cpu(const at::Tensor& all) {
  const int64_t replicas = all.size(0), size = 3 * all.size(2);
  const at::Tensor given = all.contiguous();
  const double* data = given.const_data_ptr<double>();
  auto merge = [&](std::vector<double>& left, const std::vector<double>& right) {
    merge_into(left, right, static_cast<size_t>(all.size(2)));
  };
  TreeAccumulator<std::vector<double>, decltype(merge)> tree(replicas, merge);
  for (int64_t r = 0; r < replicas; ++r)
    tree.push({r, r + 1}, std::vector<double>(data + r * size, data + (r + 1) * size));
  at::Tensor merged = at::empty({3, all.size(2)}, all.options());
  std::copy_n(tree.entries().front().value.data(), size, merged.mutable_data_ptr<double>());
  return merged;
}

template <class Part>
void for_each_channel(const at::Tensor& moments, const Part& part) {
  if (!moments.is_cpu()) return cuda::for_each_channel(moments.device(), part.channels, part);
  for (int64_t c = 0; c < part.channels; ++c) part(c);
}

/// Whether a row of running statistics is moved in place.
bool is_plain(const at::Tensor& running, const at::Tensor& moments) {
  return !running.defined() || (running.device() == moments.device() && running.is_contiguous() &&
                                (running.scalar_type() == at::kFloat || running.scalar_type() == at::kDouble));
}

void move_row(const at::Tensor& running, const at::Tensor& moments, double momentum, bool variance) {
  if (!running.defined()) return;
  const auto move = [&]<class T>(T* row) {
    for_each_channel(moments, MoveRow<T>{row, moments.const_data_ptr<double>(), running.numel(), momentum, variance});
  };
  if (running.scalar_type() == at::kFloat)
    move(running.mutable_data_ptr<float>());
  else
    move(running.mutable_data_ptr<double>());
}

}  // namespace

at::Tensor merge_moments(const at::Tensor& all) {
  const bool flat = all.dim() == 2;
  require((flat && all.size(1) % 3 == 0) || (all.dim() == 3 && all.size(1) == 3), "merge_moments", "moments are ",
          all.sizes(), ", expected [replicas, 3, channels]");
  require(all.size(0) > 0 && all.scalar_type() == at::kDouble, "merge_moments", "got ", all.size(0), " replicas of ",
          all.scalar_type(), ", expected at least one of Double");
  const at::Tensor given = flat ? all.view({all.size(0), 3, all.size(1) / 3}) : all;
  return given.is_cpu() ? merge_on_cpu(given) : cuda::merge_moments(given);
}

at::Tensor sum_as_tree(const at::Tensor& all) {
  require(all.dim() > 0 && all.size(0) > 0, "sum_as_tree", "tensor is ", all.sizes(), ", expected [replicas, ...]");
  // Neighbours of a whole level of the tree at a time; a last node without a neighbour goes up as it is.
  at::Tensor level = all;
  while (level.size(0) > 1) {
    const int64_t pairs = level.size(0) / 2;
    at::Tensor next = level.slice(0, 0, 2 * pairs, 2) + level.slice(0, 1, 2 * pairs, 2);
    if (level.size(0) > 2 * pairs) next = at::cat({next, level.narrow(0, 2 * pairs, 1)});
    level = std::move(next);
  }
  return level[0];
}

at::Tensor exchange_moments(Peers* peers, const at::Tensor& mine) {
  if (peers == nullptr || peers->replicas() == 1) return mine;
  return merge_moments(peers->all_gather(mine.reshape(-1)));
}

at::Tensor exchange_sums(Peers* peers, const at::Tensor& mine) {
  if (peers == nullptr || peers->replicas() == 1) return mine;
  return sum_as_tree(peers->all_gather(mine.reshape(-1))).view(mine.sizes());
}

BatchStatistics::BatchStatistics(const at::Tensor& moments, double epsilon) : mean(moments[1]) {
  const at::Tensor given = moments.contiguous(), rows = at::empty_like(given);
  for_each_channel(
      given, MakeStatistics{given.const_data_ptr<double>(), given.size(1), epsilon, rows.mutable_data_ptr<double>()});
  count = rows[0];
  variance = rows[1];
  inverse_deviation = rows[2];
}

void move_running_statistics(const at::Tensor& running_mean, const at::Tensor& running_var, const at::Tensor& moments,
                             double momentum) {
  const at::NoGradGuard no_grad;
  if (is_plain(running_mean, moments) && is_plain(running_var, moments)) {
    const at::Tensor given = moments.contiguous();
    move_row(running_mean, given, momentum, false);
    move_row(running_var, given, momentum, true);
    return;
  }
  const auto move = [&](const at::Tensor& running, const at::Tensor& target, int64_t more_rows_than) {
    const at::Tensor weight = (moments[0] > more_rows_than).to(at::kDouble) * momentum;
    if (running.defined()) running.copy_(running.to(at::kDouble) * (1 - weight) + target * weight);
  };
  move(running_mean, moments[1], 0);
  move(running_var, moments[2] / (moments[0] - 1).clamp_min(1), 1);
}

}  // namespace lockstep::norm
