// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/context/stages.h"
#include "lockstep/models/clouds/residual_stage.h"
#include "lockstep/sparse/nn/blocks.h"

/// U-nets of sparse convolutions (Choy et al. 2019) with the names, the order and the shapes of MinkowskiEngine's, so
/// that weights trained there load: `conv0p1s1.kernel`, `bn0.bn.weight`, `block1.0.conv1.kernel`, `final.bias`.
namespace lockstep::models {

struct MinkUNetOptions {
  int64_t in_channels = 3;
  int64_t out_channels = 20;
  int64_t dimension = 3;
  sparse::nn::BlockKind block = sparse::nn::BlockKind::basic;
  /// Of the four levels down and the four up: residual blocks, and their planes.
  std::array<int64_t, 8> layers = {1, 1, 1, 1, 1, 1, 1, 1};
  std::array<int64_t, 8> planes = {32, 64, 128, 256, 128, 128, 96, 96};

  /// One of minkunet_variants(), such as "14A" or "34C", in either case. Throws Error, with the nearest one, for
  /// another.
  static MinkUNetOptions variant(const std::string& name, int64_t in_channels, int64_t out_channels,
                                 int64_t dimension = 3);
};

/// 14, 14A to 14D, 18, 18A, 18B, 18D, 34, 34A to 34C, 50, 101. Those without a letter, to which MinkowskiEngine gives
/// no planes, have those of A.
const std::vector<std::string>& minkunet_variants();

/// forward(x [N, in_channels]) -> [N, out_channels] at the same coordinates; x has the tensor stride 1, and N may be 0.
class MinkUNetImpl : public torch::nn::Cloneable<MinkUNetImpl>, public Staged {
 public:
  /// Throws Error where a number is below 1.
  explicit MinkUNetImpl(const MinkUNetOptions& options);
  void reset() override;
  sparse::SparseTensor forward(const sparse::SparseTensor& x);
  /// Each change of resolution is one, and each block.
  std::vector<Stage> stages() override;

  MinkUNetOptions options;

 private:
  /// What leads to another resolution: a convolution, its norm and the blocks behind it.
  struct Level {
    sparse::nn::Convolution convolution{nullptr};
    sparse::nn::BatchNorm norm{nullptr};
    ResidualStage blocks{nullptr};
    sparse::SparseTensor resize(const sparse::SparseTensor& x);
  };
  void add_down(int64_t level);
  void add_up(int64_t level);
  void add_blocks(Level& level, int64_t number, int64_t in_channels);

  sparse::nn::Convolution first_{nullptr}, final_{nullptr};
  sparse::nn::BatchNorm first_norm_{nullptr};
  std::vector<Level> down_, up_;
  int64_t channels_ = 0;        // of what the last layer made so far gives
  std::vector<int64_t> skips_;  // channels of each resolution on the way down
};
TORCH_MODULE(MinkUNet);

}  // namespace lockstep::models
