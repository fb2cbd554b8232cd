// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/stack_unet.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/sparse/convolution.h"
#include "lockstep/sparse/nn/join.h"
#include "lockstep/sparse/nn/pointwise.h"
#include "lockstep/sparse/nn/pooling.h"

namespace lockstep::models {
namespace {

namespace nn = sparse::nn;
using sparse::SparseTensor;

constexpr int64_t kChannels = 16, kCoarseChannels = 32;

nn::KernelOptions kernel(int64_t dimension, int64_t size, int64_t stride) {
  return {.dimension = dimension, .kernel_size = {size}, .stride = {stride}};
}
nn::PoolingTranspose unpooling(int64_t dimension) {
  return nn::PoolingTranspose(kernel(dimension, /*size=*/2, /*stride=*/2));
}

/// To half the resolution and back: a convolution `0`, a transposed one `1`, unpooling.
struct QuarterImpl : torch::nn::Cloneable<QuarterImpl> {
  explicit QuarterImpl(int64_t dimension) : dimension(dimension) { reset(); }
  void reset() override {
    down = register_module(
        "0", nn::Convolution(nn::ConvolutionOptions{kChannels, kCoarseChannels, kernel(dimension, 3, 2)}));
    across = register_module(
        "1", nn::Convolution(
                 nn::ConvolutionTranspose(nn::ConvolutionOptions{kCoarseChannels, kChannels, kernel(dimension, 3, 1)})
                     .ptr()));
    up = register_module("2", unpooling(dimension));
  }
  SparseTensor forward(const SparseTensor& x) { return up(across(down(x))); }
  int64_t dimension;
  nn::Convolution down{nullptr}, across{nullptr};
  nn::PoolingTranspose up{nullptr};
};
TORCH_MODULE(Quarter);

/// To half the resolution and back: a convolution `0`, a sum `1` of that and what a Quarter makes of it, unpooling.
struct HalfImpl : torch::nn::Cloneable<HalfImpl> {
  HalfImpl(int64_t in, int64_t dimension) : in(in), dimension(dimension) { reset(); }
  void reset() override {
    down = register_module("0", nn::Convolution(nn::ConvolutionOptions{in, kChannels, kernel(dimension, 3, 2)}));
    sum = register_module("1", nn::StackSum(nn::Pointwise<torch::nn::Identity>(), Quarter(dimension)));
    up = register_module("2", unpooling(dimension));
  }
  SparseTensor forward(const SparseTensor& x) { return up(sum(down(x))); }
  int64_t in, dimension;
  nn::Convolution down{nullptr};
  nn::StackSum sum{nullptr};
  nn::PoolingTranspose up{nullptr};
};
TORCH_MODULE(Half);

}  // namespace

/// A sum `0` over two resolutions, and a linear layer `2`.
struct StackUNetImpl::Net : torch::nn::Cloneable<Net> {
  explicit Net(const StackUNetOptions& options) : options(options) { reset(); }
  void reset() override {
    const nn::ConvolutionOptions whole{options.in_channels, kChannels, kernel(options.dimension, 3, 1)};
    sum = register_module("0", nn::StackSum(nn::Convolution(whole), Half(options.in_channels, options.dimension)));
    linear = register_module("2", torch::nn::Linear(kChannels, options.out_channels));
  }
  StackUNetOptions options;
  nn::StackSum sum{nullptr};
  torch::nn::Linear linear{nullptr};
};

StackUNetImpl::StackUNetImpl(const StackUNetOptions& options) : options(options) {
  const int64_t least = std::min(options.in_channels, options.out_channels);
  require(least > 0, "StackUNet", "channels are ", options.in_channels, " -> ", options.out_channels,
          ", expected at least 1 of each");
  StackUNetImpl::reset();
}

void StackUNetImpl::reset() {
  net_ = register_module("net", std::make_shared<Net>(options));
}

SparseTensor StackUNetImpl::forward(const SparseTensor& x) {
  const at::Tensor features = net_->sum(x).features();
  return x.with_features(sparse::linear(features, net_->linear->weight.t(), net_->linear->bias));
}

}  // namespace lockstep::models
