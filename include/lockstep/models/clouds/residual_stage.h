// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/context/stages.h"
#include "lockstep/sparse/nn/blocks.h"

namespace lockstep::models {

/// Residual blocks one after another, under the names 0, 1, 2, ...; the first one has the stride and changes the
/// channels.
class ResidualStageImpl : public torch::nn::Cloneable<ResidualStageImpl> {
 public:
  /// Throws Error where there is no block.
  ResidualStageImpl(sparse::nn::BlockKind kind, int64_t blocks, const sparse::nn::BlockOptions& first);
  void reset() override;
  sparse::SparseTensor forward(sparse::SparseTensor x);
  /// A stage of each block, under the block's name behind `prefix`.
  void add_stages(const std::string& prefix, std::vector<Stage>& to) const;
  int64_t out_channels() const { return blocks_.back()->out_channels(); }

 private:
  sparse::nn::BlockKind kind_;
  int64_t count_;
  sparse::nn::BlockOptions first_;
  std::vector<std::shared_ptr<sparse::nn::ResidualBlockImpl>> blocks_;
};
TORCH_MODULE(ResidualStage);

/// How MinkowskiEngine's networks begin: kernels of convolutions normal(0, sqrt(2 / fan out)), those of one offset
/// without a stride normal(0, sqrt(2 / Cin)); what is transposed keeps its uniform values, and norms their ones and
/// zeros.
void initialise_as_minkowski(torch::nn::Module& network);

}  // namespace lockstep::models
