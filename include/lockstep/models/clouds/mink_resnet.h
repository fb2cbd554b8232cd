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
#include "lockstep/sparse/nn/join.h"
#include "lockstep/sparse/nn/norm.h"
#include "lockstep/sparse/nn/pointwise.h"
#include "lockstep/sparse/tensor_field.h"

/// Residual networks of sparse convolutions that classify clouds, with the names, the order and the shapes of
/// MinkowskiEngine's: `conv1.0.kernel`, `layer1.0.conv1.kernel`, `conv5.1.kernel`, `final.linear.weight`.
namespace lockstep::models {

struct MinkResNetOptions {
  int64_t in_channels = 3;
  int64_t out_channels = 40;
  int64_t dimension = 3;
  sparse::nn::BlockKind block = sparse::nn::BlockKind::basic;
  std::array<int64_t, 4> layers = {1, 1, 1, 1};
  /// Begins with a perceptron of each point, `field_network`, whose means in a voxel go through another with the point,
  /// `field_network2`.
  bool field = false;

  /// 14, 18, 34, 50 or 101. Throws Error for another.
  static MinkResNetOptions of_depth(int64_t depth, int64_t in_channels, int64_t out_channels, int64_t dimension = 3);
};

/// Points to voxels: sin, norm, ReLU, linear, norm, ReLU of each point, under the numbers 0 to 5, then their means.
class FieldNetworkImpl : public torch::nn::Cloneable<FieldNetworkImpl> {
 public:
  FieldNetworkImpl(int64_t in_channels, int64_t out_channels) : in_(in_channels), out_(out_channels) { reset(); }
  void reset() override;
  sparse::SparseTensor forward(const sparse::TensorField& x);

 private:
  int64_t in_, out_;
  sparse::nn::Sinusoidal wave_{nullptr};
  sparse::nn::BatchNorm wave_norm_{nullptr}, linear_norm_{nullptr};
  sparse::nn::Linear linear_{nullptr};
};
TORCH_MODULE(FieldNetwork);

/// forward(x of B clouds) -> [B, out_channels], one row for each batch entry that has points.
class MinkResNetImpl : public torch::nn::Cloneable<MinkResNetImpl>, public Staged {
 public:
  /// Throws Error where a number is below 1.
  explicit MinkResNetImpl(const MinkResNetOptions& options);
  void reset() override;
  /// Of voxels; to a field part they are points.
  at::Tensor forward(const sparse::SparseTensor& x);
  /// Of a field; without a field part, of the means in its voxels.
  at::Tensor forward(const sparse::TensorField& x);
  /// Each block is one, and so is a field part, which takes a field; else the first one takes voxels.
  std::vector<Stage> stages() override;

  MinkResNetOptions options;

 private:
  struct Stem;
  struct Neck;

  FieldNetwork field_{nullptr}, field2_{nullptr};
  std::shared_ptr<Stem> stem_;
  std::vector<ResidualStage> layers_;
  std::shared_ptr<Neck> neck_;
  sparse::nn::Linear final_{nullptr};
};
TORCH_MODULE(MinkResNet);

}  // namespace lockstep::models
