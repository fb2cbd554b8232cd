// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace lockstep::parallel {

class Optimizer;

/// What a replica brings to a step besides its gradients.
struct Contribution {
  static constexpr size_t kLoss = 0;
  static constexpr size_t number_of(size_t sum) { return kLoss + 1 + sum; }

  struct Later {
    size_t number;
    at::Tensor value;
    double factor;
  };

  double weight = 0;
  std::vector<double> numbers = {0};  // the sum of weight times loss, then as the optimiser's sum_names()
  std::vector<Later> later = {};      // what is still to be read, and added to them
  const Optimizer* handle = nullptr;

  /// Adds `factor` times the one number of `value`; later, where reading it now would wait for a GPU.
  void add(size_t number, const at::Tensor& value, double factor);
};

/// What was to be read later, of all of a device with one wait.
void read_later(std::span<Contribution> contributions);

}  // namespace lockstep::parallel
