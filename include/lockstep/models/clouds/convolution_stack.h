// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/sparse/nn/convolution.h"
#include "lockstep/sparse/nn/norm.h"

namespace lockstep::models {

enum class Activation { elu, leaky_relu };
at::Tensor activate(const at::Tensor& x, Activation activation);

/// One convolution of a stack.
struct StackedConvolution {
  int64_t out_channels = 0;
  int64_t kernel_size = 3;
  int64_t stride = 1;
  sparse::nn::ConvolutionKind kind = sparse::nn::ConvolutionKind::forward;
};

/// Convolutions one after another, behind each a batch norm and an activation: a sequence, so that they have the names
/// 0 and 1, 3 and 4, 6 and 7, ...
class ConvolutionStackImpl : public torch::nn::Cloneable<ConvolutionStackImpl> {
 public:
  ConvolutionStackImpl(int64_t in_channels, std::vector<StackedConvolution> layers, Activation activation,
                       int64_t dimension);
  void reset() override;
  sparse::SparseTensor forward(sparse::SparseTensor x);

 private:
  struct Layer {
    sparse::nn::Convolution convolution{nullptr};
    sparse::nn::BatchNorm norm{nullptr};
  };
  int64_t in_channels_;
  std::vector<StackedConvolution> options_;
  Activation activation_;
  int64_t dimension_;
  std::vector<Layer> layers_;
};
TORCH_MODULE(ConvolutionStack);

}  // namespace lockstep::models
