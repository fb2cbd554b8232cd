// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <sstream>
#include <string>

namespace lockstep::models::test {

/// "[27, 3, 64]", or "none" where there is no such parameter.
inline std::string shape_of(const torch::nn::Module& net, const std::string& name) {
  std::ostringstream out;
  const auto parameters = net.named_parameters();
  const auto* found = parameters.find(name);
  if (found == nullptr) return "none";
  out << found->sizes();
  return out.str();
}

/// That a backward pass reached every parameter.
inline void expect_gradients_everywhere(const torch::nn::Module& net) {
  for (const auto& parameter : net.named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    EXPECT_GT(parameter.value().grad().abs().sum().item<double>(), 0) << parameter.key();
  }
}

}  // namespace lockstep::models::test
