// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/clouds/convolution_stack.h"

/// What networks share that make clouds: they grow all voxels of the next resolution and keep those that they take for
/// occupied, resolution by resolution.
namespace lockstep::models {

/// What a cloud should become: the coordinates of another, of tensor stride 1, in the same manager. Without one there
/// is nothing to learn from.
using Target = std::optional<sparse::CoordinateMapKey>;

/// What a network made, and what it said on the way, from coarse to fine.
struct Generated {
  std::vector<sparse::SparseTensor> logits;  ///< [n, 1] of all voxels grown; those above 0 are taken for occupied
  std::vector<at::Tensor> targets;           ///< bool [n]: whether the target is there. None without a target
  sparse::SparseTensor cloud;                ///< the voxels kept at the finest resolution, maybe none
};

/// The mean over resolutions of the mean binary cross entropy of their voxels: float32 or float64 []. A resolution
/// without voxels counts as 0. Throws Error without targets.
at::Tensor occupancy_loss(const Generated& made);

/// One resolution: what grows its voxels, and a linear layer that tells which of them are occupied.
class GenerativeLevel {
 public:
  /// The stack ends with `channels`.
  GenerativeLevel(ConvolutionStack grow, int64_t channels, int64_t dimension);
  /// Registers them with the network.
  void join(torch::nn::Module& network, const std::string& stack, const std::string& classifier) const;
  /// Takes made.cloud to this resolution, where `skip`, if there is one, is added to it. `force` keeps what the target
  /// has too.
  void run(Generated& made, const sparse::SparseTensor* skip, const Target& target, bool force);

 private:
  ConvolutionStack grow_;
  sparse::nn::Convolution classify_;
};

}  // namespace lockstep::models
