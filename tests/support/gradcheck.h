// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace lockstep::test {

using Differentiable = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Gradients of sum(f(inputs) * direction) for each input, by autograd.
inline std::vector<at::Tensor> autograd_gradients(const Differentiable& f, const std::vector<at::Tensor>& inputs,
                                                  const at::Tensor& direction, bool create_graph = false) {
  const at::Tensor sum = (f(inputs) * direction).sum();
  auto gradients = torch::autograd::grad({sum}, inputs, {}, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
  for (size_t i = 0; i < inputs.size(); ++i)  // none at all: the gradient is zero, which differences must confirm
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(inputs[i]);
  return gradients;
}

/// Expects autograd's gradients of f to be those of central differences. Inputs are float64 and small.
inline void expect_gradients(const Differentiable& f, const std::vector<at::Tensor>& values, double tolerance = 1e-6) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& value : values) {
    ASSERT_EQ(value.scalar_type(), at::kDouble);
    inputs.push_back(value.detach().clone().requires_grad_(true));
  }
  at::manual_seed(1);
  const at::Tensor direction = at::randn_like(f(inputs).detach());
  const std::vector<at::Tensor> gradients = autograd_gradients(f, inputs, direction);
  constexpr double step = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& value : values) moved.push_back(value.detach().clone().contiguous());
    at::Tensor numeric = at::empty_like(moved[i]);
    double* x = moved[i].mutable_data_ptr<double>();
    double* out = numeric.mutable_data_ptr<double>();
    for (int64_t j = 0; j < moved[i].numel(); ++j) {
      const double before = x[j];
      x[j] = before + step;
      const double above = (f(moved).detach() * direction).sum().item<double>();
      x[j] = before - step;
      const double below = (f(moved).detach() * direction).sum().item<double>();
      x[j] = before;
      out[j] = (above - below) / (2 * step);
    }
    EXPECT_TRUE(at::allclose(gradients[i], numeric, tolerance, tolerance))
        << "input " << i << ": largest difference " << (gradients[i] - numeric).abs().max().item<double>();
  }
}

/// The same for the gradients of f: f twice differentiated, by its inputs and by the direction.
inline void expect_second_gradients(const Differentiable& f, const std::vector<at::Tensor>& values,
                                    double tolerance = 1e-6) {
  at::manual_seed(2);
  std::vector<at::Tensor> all = values;
  all.push_back(at::randn_like(f(values).detach()));
  expect_gradients(
      [&](const std::vector<at::Tensor>& given) {
        // Central differences call this without gradients asked for; autograd needs leaves to differentiate by.
        std::vector<at::Tensor> inputs(given.begin(), given.end() - 1);
        for (at::Tensor& input : inputs)
          if (!input.requires_grad()) input = input.detach().clone().requires_grad_(true);
        std::vector<at::Tensor> flat;
        for (const at::Tensor& gradient : autograd_gradients(f, inputs, given.back(), true))
          flat.push_back(gradient.reshape({-1}));
        return at::cat(flat);
      },
      all, tolerance);
}

}  // namespace lockstep::test
