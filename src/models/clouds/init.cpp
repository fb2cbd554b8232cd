// SPDX-License-Identifier: Apache-2.0
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/sparse/nn/blocks.h"
#include "models/clouds/clouds.h"

namespace lockstep::models {
namespace {

/// Torch's initialisers read a kernel [K, Cin, Cout] as [out, in, ...]; `fans` is the sum of what both really are.
void draw_layer(const at::Tensor& kernel, const at::Tensor& bias, int64_t fans, const std::string& how) {
  const double bound = std::sqrt(6 / static_cast<double>(std::max<int64_t>(1, fans)));
  if (how == "kaiming")
    sparse::nn::kaiming_normal_(kernel, std::numbers::sqrt2);
  else if (how == "xavier")
    torch::nn::init::uniform_(kernel, -bound, bound);
  else
    torch::nn::init::normal_(kernel, 0, kD2lDeviation);
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

}  // namespace

bool draw_sparse(torch::nn::Module& module, const std::string& how) {
  namespace nn = sparse::nn;
  if (const auto* layer = module.as<nn::ConvolutionImpl>()) {
    const int64_t volume = layer->geometry().region.volume();
    draw_layer(layer->kernel, layer->bias, volume * (layer->kernel.size(-2) + layer->kernel.size(-1)), how);
  } else if (const auto* wave = module.as<nn::SinusoidalImpl>()) {
    draw_layer(wave->kernel, wave->bias, wave->kernel.size(0) + wave->kernel.size(1), how);
  } else if (const auto* own = module.as<nn::ChannelwiseConvolutionImpl>()) {
    draw_layer(own->kernel, own->bias, 2 * own->kernel.size(0), how);  // [K, C]: each channel sees itself alone
  } else {
    return module.as<nn::InstanceNormImpl>() != nullptr;
  }
  return true;
}

}  // namespace lockstep::models
