// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/models/clouds/generative.h"

/// A U-net that completes clouds, with the names, the order and the shapes of MinkowskiEngine's CompletionNet:
/// `enc_block_s1s2.0.kernel`, `dec_block_s64s32.1.bn.weight`, `dec_s32_cls.bias`.
namespace lockstep::models {

struct CompletionOptions {
  int64_t in_channels = 1;
  int64_t dimension = 3;
  /// Of each resolution, from fine to coarse.
  std::vector<int64_t> channels = {16, 32, 64, 128, 256, 512, 1024};
};

class CompletionNetImpl : public torch::nn::Cloneable<CompletionNetImpl> {
 public:
  /// Throws Error where there are fewer than two resolutions or a number of channels is below 1.
  explicit CompletionNetImpl(const CompletionOptions& options);
  void reset() override;
  /// partial [N, in_channels] of tensor stride 1. In training, resolutions but the finest keep what the target has
  /// whether they find it or not, and a target must be given. Throws Error without one.
  Generated forward(const sparse::SparseTensor& partial, const Target& target = {});

  CompletionOptions options;

 private:
  std::vector<ConvolutionStack> encoder_;  // from fine to coarse
  std::vector<GenerativeLevel> decoder_;   // from coarse to fine
};
TORCH_MODULE(CompletionNet);

}  // namespace lockstep::models
