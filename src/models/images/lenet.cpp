// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/lenet.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"
#include "lockstep/dense/pooled_convolution.h"

namespace lockstep::models {
namespace {

// A convolution of `kernel` without padding, then pooling by 2.
int64_t after(int64_t size, int64_t kernel) {
  return size < kernel ? 0 : (size - kernel + 1) / 2;
}

int64_t features(const LeNetOptions& options) {
  return 50 * after(after(options.height, 3), 5) * after(after(options.width, 3), 5);
}

}  // namespace

std::vector<at::Tensor> lenet_parameters(int64_t classes) {
  constexpr double scale = 0.01;
  return {at::randn({20, 1, 3, 3}) * scale,  at::zeros({20}),  //
          at::randn({50, 20, 5, 5}) * scale, at::zeros({50}),  //
          at::randn({800, 128}) * scale,     at::zeros({128}), at::randn({128, classes}) * scale, at::zeros({classes})};
}

at::Tensor lenet(const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
  require(parameters.size() == 8, "lenet", "there are ", parameters.size(),
          " parameters, expected 8: W1, b1, ..., W4, b4");
  const auto& p = parameters;
  const auto h1 = dense::convolve_relu_pool(x, p[0], p[1]);
  const auto h2 = dense::convolve_relu_pool(h1, p[2], p[3]);
  const auto h3 = at::relu(at::addmm(p[5], h2.flatten(1), p[4]));
  return at::addmm(p[7], h3, p[6]);
}

LeNetImpl::LeNetImpl(const LeNetOptions& options) : options(options) {
  require(features(options) > 0, "LeNet", "images are ", options.height, "x", options.width,
          ", expected 14x14 or larger");
  LeNetImpl::reset();
}

void LeNetImpl::reset() {
  conv1 = register_module("conv1", torch::nn::Conv2d(options.channels, 20, 3));
  conv2 = register_module("conv2", torch::nn::Conv2d(20, 50, 5));
  fc1 = register_module("fc1", torch::nn::Linear(features(options), 128));
  fc2 = register_module("fc2", torch::nn::Linear(128, options.classes));
}

std::vector<Stage> LeNetImpl::stages() {
  return {{"conv1", [this](const at::Tensor& x) { return dense::convolve_relu_pool(x, conv1->weight, conv1->bias); }},
          {"conv2", [this](const at::Tensor& x) { return dense::convolve_relu_pool(x, conv2->weight, conv2->bias); }},
          {"fc1", [this](const at::Tensor& x) { return at::relu(fc1(x.flatten(1))); }},
          {"fc2", [this](const at::Tensor& x) { return fc2(x); }}};
}

at::Tensor LeNetImpl::forward(const at::Tensor& x) {
  return fold<at::Tensor>(stages(), x);
}

}  // namespace lockstep::models
