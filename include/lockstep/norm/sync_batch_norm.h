// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "lockstep/context/detail/peers.h"

namespace torch::nn {
class Module;
}

namespace lockstep::norm {

/// Where a batch norm takes its statistics from in training.
enum class BatchNormMode : uint8_t {
  /// All replicas' shares together: forward pass, gradients and running statistics are those of one device on the
  /// joined batch.
  synchronised,
  /// Each replica's own share. The running statistics, the same on every replica, move towards the mean over replicas
  /// (those with examples; for the variance with two or more) of the shares' means and variances: in a team when a step
  /// is over, in one small exchange for all layers.
  ghost,
};

/// Turns every BatchNorm1d, 2d and 3d, and every sparse one, in the module, at any depth, into a synchronised one, in
/// place; returns how many.
///
/// A module's members have their types (`torch::nn::BatchNorm2d bn1`), so no other layer can take their place. The
/// layers are *marked* instead, and libtorch's at::batch_norm, which all of them call, is given kernels that look for
/// the mark. What is not marked runs as before. The mark lies on the layer's running_mean (its weight, where it tracks
/// nothing): it survives to(device) and load, and is lost by clone(), so who clones calls copy_marks.
///
/// Peers are those of the thread that calls forward (current_peers()); where there are none the layer is an ordinary
/// batch norm. All replicas must reach the layer the same number of times, with an empty share too. A layer that tracks
/// no statistics uses its batch's in evaluation as well, so all replicas must take part there. Same bits for any timing
/// and any number of intra-op threads. Converting again changes the mode.
///
/// Layers of sparse networks are not marked but told (norm/detail/batch_norm_hook.h); their clones stay converted.
///
/// torch::nn refuses a share of a single value a channel (one example, [1, C]) before at::batch_norm is called.
///
/// Throws Error naming a layer that has neither running statistics nor weights: nothing of it can be marked.
int64_t convert_sync_batchnorm(const torch::nn::Module& module, BatchNormMode mode = BatchNormMode::synchronised);

/// For `torch::nn::Sequential`, `TORCH_MODULE` holders and shared pointers.
template <class Holder>
requires requires(const Holder& holder) {
  *holder.operator->();
}
int64_t convert_sync_batchnorm(const Holder& holder, BatchNormMode mode = BatchNormMode::synchronised) {
  return convert_sync_batchnorm(static_cast<const torch::nn::Module&>(*holder.operator->()), mode);
}

/// Whether any layer of the module is synchronised: replicas wait for each other in its passes.
bool has_synchronised(const torch::nn::Module& module);

/// Gives the copy of a module the marks of the original, layer by layer. Throws Error where they differ in layers.
void copy_marks(const torch::nn::Module& from, const torch::nn::Module& to);

/// What a marked layer calls. x [N, C, ...]; weight, bias and running statistics [C] may be undefined; N = 0 is legal.
/// The peers must live until the backward pass is over, unless they share it. The gradients of weight and bias are
/// those of this replica's share. Second derivatives throw.
at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double epsilon, BatchNormMode mode, Peers* peers);

}  // namespace lockstep::norm
