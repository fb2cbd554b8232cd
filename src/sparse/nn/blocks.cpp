// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/nn/blocks.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>

#include "lockstep/base/error.h"
#include "lockstep/sparse/convolution.h"

namespace lockstep::sparse::nn {
namespace {

constexpr int64_t kBottleneckExpansion = 4;

SparseTensor relu(const SparseTensor& x) {
  return x.with_features(at::relu(x.features()));
}

}  // namespace

SELayerImpl::SELayerImpl(int64_t channels, int64_t reduction) : channels_(channels), reduction_(reduction) {
  require(reduction >= 1 && channels >= reduction, "SELayer", "reduction is ", reduction, ", expected 1 to ", channels,
          ", the number of channels");
  reset();
}

/// Two layers of a perceptron, under the numbers that they have in a sequence with its activations.
struct SELayerImpl::Perceptron : torch::nn::Cloneable<Perceptron> {
  Perceptron(int64_t channels, int64_t hidden) : channels(channels), hidden(hidden) { reset(); }
  void reset() override {
    squeeze = register_module("0", Linear(channels, hidden));
    excite = register_module("2", Linear(hidden, channels));
  }
  int64_t channels, hidden;
  Linear squeeze{nullptr}, excite{nullptr};
};

void SELayerImpl::reset() {
  fc_ = register_module("fc", std::make_shared<Perceptron>(channels_, channels_ / reduction_));
}

SparseTensor SELayerImpl::forward(const SparseTensor& x) {
  const SparseTensor weights = fc_->excite(relu(fc_->squeeze(global_pool(x, Pooling::average))));
  return broadcast_multiply(x, weights.with_features(at::sigmoid(weights.features())));
}

void ShortcutImpl::reset() {
  const KernelOptions kernel{.dimension = options_.dimension, .kernel_size = {1}, .stride = {options_.stride}};
  convolution_ = register_module("0", Convolution(ConvolutionOptions{in_, out_, kernel}));
  norm_ = register_module("1", BatchNorm(BatchNormOptions{.num_features = out_, .momentum = options_.bn_momentum}));
}

ResidualBlockImpl::ResidualBlockImpl(const BlockOptions& options, BlockKind kind) : options_(options) {
  const int64_t planes = options.planes, dilation = options.dilation;
  if (kind == BlockKind::basic)
    stages_ = {{3, planes, options.stride, dilation}, {3, planes, 1, dilation}};
  else
    stages_ = {{1, planes, 1, 1}, {3, planes, options.stride, dilation}, {1, planes * kBottleneckExpansion, 1, 1}};
  reset();
}

void ResidualBlockImpl::reset() {
  convolutions_.clear();
  norms_.clear();
  int64_t in = options_.in_channels;
  const int64_t out = out_channels();
  for (const Stage& stage : stages_) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    const KernelOptions kernel{.dimension = options_.dimension,
                               .kernel_size = {stage.kernel_size},
                               .stride = {stage.stride},
                               .dilation = {stage.dilation}};
    convolutions_.push_back(
        register_module("conv" + number, Convolution(ConvolutionOptions{in, stage.out_channels, kernel})));
    norms_.push_back(register_module("norm" + number, BatchNorm(BatchNormOptions{.num_features = stage.out_channels,
                                                                                 .momentum = options_.bn_momentum})));
    in = stage.out_channels;
  }
  if (options_.reduction > 0) se_ = register_module("se", SELayer(out, options_.reduction));
  if (options_.stride != 1 || options_.in_channels != out)
    downsample_ = register_module("downsample", Shortcut(options_.in_channels, out, options_));
}

SparseTensor ResidualBlockImpl::forward(const SparseTensor& x) {
  SparseTensor y = x;
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    y = norms_[i](convolutions_[i](y));
    if (i + 1 < convolutions_.size()) y = relu(y);
  }
  if (!se_.is_empty()) y = se_(y);
  return relu(y + (downsample_.is_empty() ? x : downsample_(x)));
}

void SinusoidalImpl::reset() {
  kernel = register_parameter("kernel", at::randn({in_, out_}));
  bias = register_parameter("bias", at::randn({1, out_}));
  coef = register_parameter("coef", at::randn({1, out_}));
}

at::Tensor SinusoidalImpl::on_features(const at::Tensor& features) {
  return scale_channels(at::sin(linear(features, kernel, bias)), coef);
}

}  // namespace lockstep::sparse::nn
