// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/small_images.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/context/sequential_stages.h"

namespace lockstep::models {
namespace {

void check(const char* network, const SmallImageOptions& options, int64_t smallest) {
  require(options.height >= smallest && options.width >= smallest, network, "images are ", options.height, "x",
          options.width, ", expected ", smallest, "x", smallest, " or larger");
  require(options.channels > 0 && options.classes > 0, network, "there are ", options.channels, " channels and ",
          options.classes, " classes, expected at least one of each");
  require(options.scale > 0, network, "the scale is ", options.scale, ", expected it above 0");
  require(options.dropout >= 0 && options.dropout < 1, network, "dropout is ", options.dropout,
          ", expected it in [0, 1)");
}

int64_t scaled(const SmallImageOptions& options, int64_t size) {
  return std::max<int64_t>(1, std::llround(options.scale * static_cast<double>(size)));
}

// Padded so that the image keeps its size.
torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, bool bias) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).padding(kernel / 2).bias(bias));
}

torch::nn::MaxPool2d pooling() {
  return torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2));
}

std::vector<Stage> stages_of(torch::nn::Sequential& features, torch::nn::Sequential& classifier) {
  std::vector<Stage> stages = lockstep::stages_of(*features, "features.");
  stages.emplace_back("flatten", [](const at::Tensor& x) { return x.flatten(1); });
  for (Stage& stage : lockstep::stages_of(*classifier, "classifier.")) stages.push_back(std::move(stage));
  return stages;
}

}  // namespace

AlexNetImpl::AlexNetImpl(const SmallImageOptions& options) : options(options) {
  check("AlexNet", options, 8);
  AlexNetImpl::reset();
}

void AlexNetImpl::reset() {
  struct Layer {
    int64_t channels, kernel;
    bool pooled;
  };
  features = register_module("features", torch::nn::Sequential());
  int64_t in = options.channels;
  for (const Layer& layer : {Layer{64, 5, true}, {192, 5, true}, {384, 3, false}, {256, 3, false}, {256, 3, true}}) {
    const int64_t out = scaled(options, layer.channels);
    features->push_back(convolution(in, out, layer.kernel, true));
    features->push_back(torch::nn::ReLU());
    if (layer.pooled) features->push_back(pooling());
    in = out;
  }
  const int64_t units = scaled(options, 512);
  classifier = register_module(
      "classifier",
      torch::nn::Sequential(torch::nn::Dropout(options.dropout),
                            torch::nn::Linear(in * (options.height / 8) * (options.width / 8), units),
                            torch::nn::ReLU(), torch::nn::Dropout(options.dropout), torch::nn::Linear(units, units),
                            torch::nn::ReLU(), torch::nn::Linear(units, options.classes)));
}

std::vector<Stage> AlexNetImpl::stages() {
  return stages_of(features, classifier);
}

at::Tensor AlexNetImpl::forward(const at::Tensor& x) {
  return fold<at::Tensor>(stages(), x);
}

VggImpl::VggImpl(const SmallImageOptions& options) : options(options) {
  check("Vgg", options, 16);
  VggImpl::reset();
}

void VggImpl::reset() {
  struct Stage {
    int64_t convolutions, channels;
  };
  features = register_module("features", torch::nn::Sequential());
  int64_t in = options.channels;
  for (const Stage& stage : {Stage{1, 64}, {1, 128}, {2, 256}, {2, 512}}) {
    for (int64_t i = 0; i < stage.convolutions; ++i) {
      const int64_t out = scaled(options, stage.channels);
      features->push_back(convolution(in, out, 3, false));  // the norm has the bias
      features->push_back(torch::nn::BatchNorm2d(out));
      features->push_back(torch::nn::ReLU());
      in = out;
    }
    features->push_back(pooling());
  }
  const int64_t units = scaled(options, 512);
  classifier = register_module(
      "classifier", torch::nn::Sequential(torch::nn::Linear(in * (options.height / 16) * (options.width / 16), units),
                                          torch::nn::ReLU(), torch::nn::Dropout(options.dropout),
                                          torch::nn::Linear(units, options.classes)));
}

std::vector<Stage> VggImpl::stages() {
  return stages_of(features, classifier);
}

at::Tensor VggImpl::forward(const at::Tensor& x) {
  return fold<at::Tensor>(stages(), x);
}

}  // namespace lockstep::models
