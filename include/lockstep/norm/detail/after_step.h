// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "lockstep/context/detail/peers.h"
#include "lockstep/norm/detail/batch_norm.h"

namespace lockstep::norm {

/// Ghost batch norms' running statistics move towards the mean over replicas of their shares' statistics. Nothing in a
/// step needs them, so the layers leave here what they saw, and no replica waits for another in its forward pass. When
/// the step is over, the rows of all layers cross between the replicas in one exchange.
class AfterStep {
 public:
  /// A layer's [4, C] of this replica (rows_of_share), of any floating-point type.
  void add(at::Tensor rows, const Layer& layer);
  /// Collective: all replicas have added the same layers. Moves the running statistics, in the layers' order.
  void run(Peers& peers);

 private:
  struct Entry {
    at::Tensor rows, mean, variance;
    double momentum;
  };
  static size_t end_of_run(const std::vector<Entry>& entries, size_t begin);
  static void move(std::span<const Entry> entries, const at::Tensor& moments);

  std::vector<Entry> entries_;
};

/// What a replica brings of its share, given its moments [3, C]: whether there is a mean, the mean, whether there is a
/// variance (one row has none that anybody could tell), and the unbiased variance, [4, C].
at::Tensor rows_of_share(const at::Tensor& moments);

/// Moves a ghost batch norm's running statistics: after the step where this thread's replica has an AfterStep, else
/// now, which waits for the other replicas.
void move_to_mean_of_shares(Peers* peers, const at::Tensor& rows, const Layer& layer);

}  // namespace lockstep::norm
