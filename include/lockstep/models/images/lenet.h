// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/context/stages.h"

/// LeNet as Dive into Deep Learning 12.5 has it: convolution to 20 channels with 3x3, to 50 with 5x5, each with ReLU
/// and average pooling by 2; dense layers of 128 and of the classes. Once with plain tensors and once as a module.
namespace lockstep::models {

/// The chapter's parameters for images [1, 28, 28]: W1 [20, 1, 3, 3], b1 [20], W2 [50, 20, 5, 5], b2 [50],
/// W3 [800, 128], b3 [128], W4 [128, classes], b4 [classes], float32 on the CPU. Weights are drawn from normal(0,
/// 0.01), from this thread's RandomScope where there is one, else from the default generator; biases are 0.
std::vector<at::Tensor> lenet_parameters(int64_t classes = 10);

/// x [N, 1, 28, 28] -> logits [N, classes], with parameters as above on the same device. N may be 0. Throws Error where
/// the number of parameters is another.
at::Tensor lenet(const at::Tensor& x, const std::vector<at::Tensor>& parameters);

struct LeNetOptions {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
  int64_t classes = 10;
};

/// The same as a module: forward(x [N, channels, height, width]) -> [N, classes]. N may be 0.
class LeNetImpl : public torch::nn::Cloneable<LeNetImpl>, public Staged {
 public:
  /// Throws Error where the images are too small (14x14 at least).
  explicit LeNetImpl(const LeNetOptions& options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  std::vector<Stage> stages() override;

  LeNetOptions options;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(LeNet);

}  // namespace lockstep::models
