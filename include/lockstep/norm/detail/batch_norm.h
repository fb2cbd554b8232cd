// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/context/detail/peers.h"
#include "lockstep/norm/sync_batch_norm.h"

/// The batch norm of every layer, dense or sparse: statistics, their exchange, running statistics and the backward
/// pass. What differs between layers are the loops over x, which they bring along.
namespace lockstep::norm {

/// The loops of a batch norm on one replica. x and gradients are [N, C, ...] or [N, C]; statistics are [C], float64; an
/// undefined weight is 1, an undefined bias 0. Each set adds up in an order of its own, so a layer keeps to one set.
struct Operations {
  /// [3, C]: count, mean, sum of squared deviations (norm/detail/batch_statistics.h).
  at::Tensor (*moments)(const at::Tensor& x);
  /// (x - mean) * inverse_deviation * weight + bias, in x's dtype.
  at::Tensor (*normalize)(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                          const at::Tensor& weight, const at::Tensor& bias);
  /// [2, C], float64: the sums of g and of g times the normalised x.
  at::Tensor (*gradient_sums)(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                              const at::Tensor& inverse_deviation);
  /// The gradient of x, given these sums over the whole batch divided by its count.
  at::Tensor (*input_gradient)(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& inverse_deviation, const at::Tensor& weight, const at::Tensor& means);
};

/// What a layer holds; tensors are [C] or undefined.
struct Layer {
  at::Tensor weight, bias, running_mean, running_var;
  double momentum = 0.1, epsilon = 1e-5;
};

/// In training: statistics are those of the batch, joined over `peers` (null: x alone) as the mode says, and move the
/// running ones. Trusts sizes. See sync_batch_norm.
at::Tensor batch_norm(const Operations& operations, const at::Tensor& x, const Layer& layer,
                      BatchNormMode mode = BatchNormMode::synchronised, Peers* peers = nullptr);

/// In evaluation: statistics are the running ones.
at::Tensor batch_norm_in_evaluation(const Operations& operations, const at::Tensor& x, const Layer& layer);

}  // namespace lockstep::norm
