// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "lockstep/parallel/rule.h"
#include "parallel/optim/cpu/rule_kernel.h"

namespace lockstep::parallel {

/// Differs where rules do, or where their numbers do: 32 bits.
uint32_t hash_of(std::span<const Rule> rules);

/// Sums of squares of one tensor and of the step it is about to make: LARS and LAMB want them.
struct TensorNorms {
  double weight = 0;
  double direction = 0;
};

/// Whether the rule scales a whole tensor's step by norms, which must be complete before any element changes.
bool needs_norms(const Rule& rule, const at::Tensor& weight);

/// The numbers for a tensor's update number `step`, counted from 1.
RuleNumbers numbers_of(const Rule& rule, int64_t step, double gradient_scale, const at::Tensor& weight);

/// For rules with norms: the numbers once these are known.
RuleNumbers with_norms(const Rule& rule, RuleNumbers numbers, const TensorNorms& norms);

/// Elements [begin, begin + gradient.numel()) of one tensor. All tensors are flat, of one dtype and device.
struct RuleSlice {
  at::Tensor weight;
  at::Tensor gradient;
  std::array<at::Tensor, 3> state;  // as state_names(rule), undefined behind them
};

/// What comes before the norms: for LAMB the moments move on and the direction replaces the gradient.
void prepare(const Rule& rule, const RuleNumbers& numbers, const RuleSlice& slice);
/// Updates weight and state.
void apply(const Rule& rule, const RuleNumbers& numbers, const RuleSlice& slice);

/// The sum of squares of a flat tensor, in double.
double sum_squares(const at::Tensor& flat);

}  // namespace lockstep::parallel
