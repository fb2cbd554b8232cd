// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "lockstep/context/stages.h"
#include "lockstep/models/clouds/convolution_stack.h"
#include "lockstep/sparse/nn/pointwise.h"
#include "lockstep/sparse/nn/pooling.h"
#include "lockstep/sparse/tensor_field.h"

/// A fully convolutional network that classifies clouds of points, with the names, the order and the shapes of
/// MinkowskiEngine's MinkowskiFCNN: `mlp1.0.linear.weight`, `conv5.2.0.kernel`, `final.3.linear.bias`.
namespace lockstep::models {

struct MinkFcnnOptions {
  int64_t in_channels = 3;
  int64_t out_channels = 40;
  int64_t dimension = 3;
  int64_t embedding_channels = 1024;
  /// Of the perceptron of points, then of four resolutions.
  std::array<int64_t, 5> channels = {32, 48, 64, 96, 128};
};

/// Points, by themselves, then as voxels of four resolutions; each point takes what its voxels have; then as voxels
/// again down to one row a cloud: the largest and the mean values of its channels.
class MinkFcnnImpl : public torch::nn::Cloneable<MinkFcnnImpl>, public Staged {
 public:
  /// Throws Error where a number of channels is below 1, or below 4 that of the embedding.
  explicit MinkFcnnImpl(const MinkFcnnOptions& options);
  void reset() override;
  /// x of B clouds -> [B, out_channels], one row for each batch entry that has points.
  at::Tensor forward(const sparse::TensorField& x);
  /// Its voxels are the points.
  at::Tensor forward(const sparse::SparseTensor& x);
  /// The first one takes a field.
  std::vector<Stage> stages() override;

  MinkFcnnOptions options;

 private:
  struct Perceptron;
  struct Pyramid;
  struct Head;

  std::shared_ptr<Perceptron> points_;
  std::vector<ConvolutionStack> levels_;
  std::shared_ptr<Pyramid> embedding_;
  sparse::nn::MaxPooling pool_{nullptr};
  std::shared_ptr<Head> final_;
};
TORCH_MODULE(MinkFcnn);

}  // namespace lockstep::models
