// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/context/detail/peers.h"

/// The arithmetic of a synchronised batch norm, dense or sparse: what each replica sends, and how it is put together.
/// Every replica merges everybody's part itself, in the canonical tree's order, so all of them hold the same bits.
namespace lockstep::norm {

/// Moments of a batch's channels are [3, C] in float64: count, mean, sum of squared deviations from the mean. A count
/// of zero is legal, whatever the other two rows then are.

/// The moments of the joined batch, [R, 3, C] -> [3, C] (Chan, Golub and LeVeque's formula); [3, C] where the replicas
/// are given one after another as [R, 3 * C].
at::Tensor merge_moments(const at::Tensor& all);

/// The sum over replicas, [R, ...] -> [...]. Any floating-point dtype.
at::Tensor sum_as_tree(const at::Tensor& all);

/// One exchange with the peers: the moments of all replicas' batches together; the sum of all replicas' tensors. `mine`
/// itself where there are no peers (null) or only one replica.
at::Tensor exchange_moments(Peers* peers, const at::Tensor& mine);
at::Tensor exchange_sums(Peers* peers, const at::Tensor& mine);

/// What a batch norm makes of moments, each [C] in float64.
struct BatchStatistics {
  BatchStatistics(const at::Tensor& moments, double epsilon);

  at::Tensor count;              ///< at least 1, for dividing
  at::Tensor mean;               ///< 0 where the batch is empty
  at::Tensor variance;           ///< biased, of which the next is made
  at::Tensor inverse_deviation;  ///< 1 / sqrt(variance + epsilon)
};

/// Moves a batch norm's running statistics [C] (both may be undefined) towards those of a batch, the variance being the
/// unbiased one. An empty batch leaves them alone; of one row nobody can tell a variance, so it moves the mean alone.
void move_running_statistics(const at::Tensor& running_mean, const at::Tensor& running_var, const at::Tensor& moments,
                             double momentum);

}  // namespace lockstep::norm
