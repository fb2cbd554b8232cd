// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/convolution_stack.h"

#include <ATen/ops/elu.h>
#include <ATen/ops/leaky_relu.h>

#include <string>
#include <utility>

namespace lockstep::models {

namespace nn = sparse::nn;

at::Tensor activate(const at::Tensor& x, Activation activation) {
  return activation == Activation::elu ? at::elu(x) : at::leaky_relu(x);
}

ConvolutionStackImpl::ConvolutionStackImpl(int64_t in_channels, std::vector<StackedConvolution> layers,
                                           Activation activation, int64_t dimension)
    : in_channels_(in_channels), options_(std::move(layers)), activation_(activation), dimension_(dimension) {
  ConvolutionStackImpl::reset();
}

void ConvolutionStackImpl::reset() {
  layers_.clear();
  int64_t channels = in_channels_;
  for (const StackedConvolution& each : options_) {
    const size_t number = 3 * layers_.size();  // an activation has a number and no name
    const nn::ConvolutionOptions options{
        channels,
        each.out_channels,
        {.dimension = dimension_, .kernel_size = {each.kernel_size}, .stride = {each.stride}}};
    channels = each.out_channels;
    Layer& layer = layers_.emplace_back();
    layer.convolution =
        register_module(std::to_string(number), std::make_shared<nn::ConvolutionImpl>(options, each.kind));
    layer.norm = register_module(std::to_string(number + 1), nn::BatchNorm(channels));
  }
}

sparse::SparseTensor ConvolutionStackImpl::forward(sparse::SparseTensor x) {
  for (Layer& layer : layers_) {
    x = layer.norm(layer.convolution(x));
    x = x.with_features(activate(x.features(), activation_));
  }
  return x;
}

}  // namespace lockstep::models
