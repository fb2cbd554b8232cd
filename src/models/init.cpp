// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/init.h"

#include <torch/enum.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/sparse/nn/blocks.h"

namespace lockstep::models {
namespace {

void draw(const at::Tensor& weight, const std::string& how) {
  if (how == "d2l")
    torch::nn::init::normal_(weight, 0, 0.01);
  else if (how == "xavier")
    torch::nn::init::xavier_uniform_(weight);
  else
    torch::nn::init::kaiming_normal_(weight, 0, torch::kFanIn, torch::kReLU);
}

/// Torch's initialisers read a kernel [K, Cin, Cout] as [out, in, ...]; `fans` is the sum of what both really are.
void draw_layer(const at::Tensor& kernel, const at::Tensor& bias, int64_t fans, const std::string& how) {
  const double bound = std::sqrt(6 / static_cast<double>(std::max<int64_t>(1, fans)));
  if (how == "kaiming")
    sparse::nn::kaiming_normal_(kernel, std::numbers::sqrt2);
  else if (how == "xavier")
    torch::nn::init::uniform_(kernel, -bound, bound);
  else
    draw(kernel, how);
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

/// Whether the module is a sparse layer, whose parameters [1, C] are biases, scales and shifts in spite of their two
/// dimensions; its weights are drawn then.
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

}  // namespace

const std::vector<std::string>& initialisations() {
  static const std::vector<std::string> names{"default", "d2l", "xavier", "kaiming"};
  return names;
}

void check_initialisation(const std::string& how) {
  const auto& names = initialisations();
  if (std::ranges::find(names, how) != names.end()) return;
  fail("initialise", "there is no initialisation '", how, "', expected ", one_of(names), did_you_mean(how, names));
}

void initialise(torch::nn::Module& network, const std::string& how) {
  check_initialisation(how);
  if (how == "default") return;
  for (const auto& module : network.modules()) {
    if (draw_sparse(*module, how)) continue;
    const auto parameters = module->named_parameters(/*recurse=*/false);
    bool has_weights = false;
    for (const auto& item : parameters)
      if (item.value().dim() >= 2) {
        draw(item.value(), how);
        has_weights = true;
      }
    for (const auto& item : parameters)
      if (has_weights && item.value().dim() < 2) torch::nn::init::zeros_(item.value());
  }
}

}  // namespace lockstep::models
