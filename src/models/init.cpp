// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/init.h"

#include <torch/enum.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "models/clouds/clouds.h"

namespace lockstep::models {
namespace {

void draw(const at::Tensor& weight, const std::string& how) {
  if (how == "d2l")
    torch::nn::init::normal_(weight, 0, kD2lDeviation);
  else if (how == "xavier")
    torch::nn::init::xavier_uniform_(weight);
  else
    torch::nn::init::kaiming_normal_(weight, 0, torch::kFanIn, torch::kReLU);
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
