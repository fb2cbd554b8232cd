// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/equivariant.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

constexpr std::array<int64_t, 6> growth{1, 1, 2, 2, 4, 4};  // of the features, layer by layer: two a stage

}  // namespace

EquivariantImpl::EquivariantImpl(const EquivariantOptions& options) : options(options) {
  require(options.size > 0 && options.size % 4 == 0, "Equivariant", "images are ", options.size, "x", options.size,
          ", expected a size that is a multiple of 4");
  require(options.channels > 0 && options.classes > 0 && options.features > 0, "Equivariant", "there are ",
          options.channels, " channels, ", options.features, " features and ", options.classes,
          " classes, expected at least 1 of each");
  EquivariantImpl::reset();
}

void EquivariantImpl::reset() {
  const auto symmetry = options.symmetry;
  lifting = register_module("lifting", LiftingConv2d(symmetry, options.channels, growth[0] * options.features, 3));
  for (size_t l = 0; l < growth.size(); ++l) {
    const std::string number = std::to_string(l + 1);
    if (l > 0)
      convolutions[l - 1] = register_module(
          "conv" + number, GroupConv2d(symmetry, growth[l - 1] * options.features, growth[l] * options.features, 3));
    norms[l] = register_module("bn" + number, GroupBatchNorm2d(symmetry, growth[l] * options.features));
  }
  fc = register_module("fc", torch::nn::Linear(growth.back() * options.features, options.classes));
}

at::Tensor EquivariantImpl::layer(size_t number, const at::Tensor& x) {
  if (number > 0) {
    const bool pooled = growth[number] != growth[number - 1];
    return at::relu(norms[number](convolutions[number - 1](pooled ? at::max_pool2d(x, 2) : x)));
  }
  require(x.dim() == 4 && x.size(2) == options.size && x.size(3) == options.size, "Equivariant", "images are ",
          x.sizes(), ", expected [N, ", options.channels, ", ", options.size, ", ", options.size, "]");
  return at::relu(norms[0](lifting(x)));
}

at::Tensor EquivariantImpl::feature_map(at::Tensor x) {
  for (size_t l = 0; l < growth.size(); ++l) x = layer(l, x);
  return x;
}

std::vector<Stage> EquivariantImpl::stages() {
  std::vector<Stage> stages;
  for (size_t l = 0; l < growth.size(); ++l)
    stages.emplace_back(l == 0 ? "lifting" : "conv" + std::to_string(l + 1),
                        [this, l](const at::Tensor& x) { return layer(l, x); });
  stages.emplace_back("fc", [this](const at::Tensor& x) { return fc(group_pool(x, options.symmetry).mean({2, 3})); });
  return stages;
}

at::Tensor EquivariantImpl::forward(const at::Tensor& x) {
  return fold<at::Tensor>(stages(), x);
}

}  // namespace lockstep::models
