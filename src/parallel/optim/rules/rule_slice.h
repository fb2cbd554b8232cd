// SPDX-License-Identifier: Apache-2.0
// What an optimiser gives its rules to work on, and how it calls them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>

#include "lockstep/parallel/rule.h"
#include "parallel/optim/rules/kernel.h"
#include "parallel/optim/rules/rule_batch.h"

namespace lockstep::parallel {

/// One tensor's part in a step, the same for all of its slices.
struct TensorUpdate {
  int64_t number = 1;         // of the tensor's update, counted from 1
  double gradient_scale = 1;  // 1 / the sum of the replicas' weights, times clipping, over loss scaling
  bool is_matrix = true;      // of more than one dimension: neither bias nor norm
  double ratio = 1;           // what the rule made of the norms, where it scales by them
};

/// Sums of squares of one tensor and of the step it is about to make.
struct TensorNorms {
  double weight = 0;
  double direction = 0;
};

/// Elements [begin, begin + gradient.numel()) of one tensor. All tensors are flat, of one dtype and device.
struct RuleSlice {
  at::Tensor weight;
  at::Tensor gradient;
  std::array<at::Tensor, 3> state;  // as state_names(rule), undefined behind them
  RuleBatch* batch = nullptr;       // where set, kernels wait for its run()
};

/// Whether the rule scales a whole tensor's step by norms, which must be complete before any element changes.
bool needs_norms(const Rule& rule, const at::Tensor& weight);
/// What it scales the step by.
double ratio_of(const Rule& rule, const TensorUpdate& update, const TensorNorms& norms);

/// Whether prepare() does anything.
bool has_direction(const Rule& rule);
/// What comes before the norms: the state moves on and the direction of the step replaces the gradient.
void prepare(const Rule& rule, const TensorUpdate& update, const RuleSlice& slice);
/// Updates weight and state.
void apply(const Rule& rule, const TensorUpdate& update, const RuleSlice& slice);

/// What each element of the state is before the first update.
double initial_state(const Rule& rule);

/// Differs where rules do, or where their numbers do: 32 bits.
uint32_t hash_of(std::span<const Rule> rules);

// ---- for rules -----------------------------------------------------------------------------------------------------

/// Whether kernels compute it; else ATen's operations do, as for 16-bit weights.
bool has_kernel(const RuleSlice& slice);

/// The gradient, scaled, and with the decay's part of it.
at::Tensor scaled_gradient(const RuleSlice& slice, double gradient_scale, double weight_decay = 0);

template <class T>
RuleElements<T> elements_of(const RuleSlice& slice) {
  RuleElements<T> out{
      slice.weight.mutable_data_ptr<T>(), slice.gradient.mutable_data_ptr<T>(), {}, slice.weight.numel()};
  for (size_t k = 0; k < slice.state.size(); ++k)
    out.state[k] = slice.state[k].defined() ? slice.state[k].mutable_data_ptr<T>() : nullptr;
  return out;
}

template <class T, class Numbers>
void call_rule_kernel(const RuleSlice& slice, const Numbers& numbers,
                      void (*here)(const RuleElements<T>&, const Numbers&), RuleBatch::Launch on_gpu) {
  if (slice.batch == nullptr) return here(elements_of<T>(slice), numbers);
  const at::Tensor held[] = {slice.weight, slice.gradient};  // the state is the optimiser's own
  slice.batch->add(on_gpu, elements_of<T>(slice), numbers, held);
}

/// Calls a kernel of this CPU's instruction set, or adds it to the slice's batch.
#define LOCKSTEP_CALL_RULE_KERNEL(name, slice, numbers)                                                   \
  (slice.weight.scalar_type() == at::kFloat                                                               \
       ? call_rule_kernel<float>(slice, numbers, LOCKSTEP_SELECT_ISA(name##_float), on_gpu::name##_float) \
       : call_rule_kernel<double>(slice, numbers, LOCKSTEP_SELECT_ISA(name##_double), on_gpu::name##_double))

}  // namespace lockstep::parallel
