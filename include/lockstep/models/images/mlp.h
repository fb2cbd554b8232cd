// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/context/stages.h"

namespace lockstep::models {

struct MlpOptions {
  int64_t inputs = 784;                 ///< numbers in one example
  std::vector<int64_t> hidden = {256};  ///< sizes of the hidden layers; none is a linear classifier
  int64_t classes = 10;
  double dropout = 0;  ///< after each hidden layer
};

/// A multilayer perceptron with ReLU: forward(x [N, ...]) -> [N, classes], any shape of `inputs` numbers. N may be 0.
/// Its layers are `layers.0`, `layers.3`, ...: each hidden one with a ReLU and a dropout behind it.
class MlpImpl : public torch::nn::Cloneable<MlpImpl>, public Staged {
 public:
  /// Throws Error where a layer is empty or the dropout is not in [0, 1).
  explicit MlpImpl(const MlpOptions& options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  std::vector<Stage> stages() override;

  MlpOptions options;
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(Mlp);

}  // namespace lockstep::models
