// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/context/sequential_stages.h"

namespace lockstep::models {

MlpImpl::MlpImpl(const MlpOptions& options) : options(options) {
  require(options.inputs > 0, "Mlp", "an example has ", options.inputs, " numbers, expected at least 1");
  for (const int64_t size : options.hidden)
    require(size > 0, "Mlp", "a hidden layer has ", size, " units, expected at least 1");
  require(options.dropout >= 0 && options.dropout < 1, "Mlp", "dropout is ", options.dropout,
          ", expected it in [0, 1)");
  MlpImpl::reset();
}

void MlpImpl::reset() {
  layers = register_module("layers", torch::nn::Sequential());
  int64_t inputs = options.inputs;
  for (const int64_t size : options.hidden) {
    layers->push_back(torch::nn::Linear(inputs, size));
    layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::Dropout(options.dropout));
    inputs = size;
  }
  layers->push_back(torch::nn::Linear(inputs, options.classes));
}

std::vector<Stage> MlpImpl::stages() {
  std::vector<Stage> stages = stages_of(*layers, "layers.");
  stages.front().run = [first = std::move(stages.front().run)](Bundle& x) {
    x.put(x.get<at::Tensor>().flatten(1));
    first(x);
  };
  return stages;
}

at::Tensor MlpImpl::forward(const at::Tensor& x) {
  return fold<at::Tensor>(stages(), x);
}

}  // namespace lockstep::models
