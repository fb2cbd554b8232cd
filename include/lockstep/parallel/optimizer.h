// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/rule.h"
#include "lockstep/parallel/wire.h"

namespace lockstep::parallel {

class OptimizerState;

/// Parameters of this replica that follow one rule.
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  Rule rule;
};

/// What else is done to gradients before the rule sees them.
struct OptimizerOptions {
  /// Scales all gradients down where their global norm (over all tensors, after averaging) is larger; 0: off.
  double clip_norm = 0;
  /// Cuts every element of the averaged gradient to [-clip_value, clip_value]; 0: off. Applied before clip_norm.
  double clip_value = 0;
  /// Loss scaling for float16: the loss is multiplied by `initial_scale`, and gradients divided by it. A step whose
  /// gradients hold an infinity or NaN on any replica is left out and halves the scale; `growth_interval` good steps
  /// in a row double it. 0: off.
  double initial_scale = 0;
  int64_t growth_interval = 2000;
  /// What of the gradients replicas send each other: see wire.h.
  Wire wire = {};
  /// Divides the rules' state (momenta, ...) over the processes, as ZeRO-1 does: each keeps and updates its part of the
  /// weights, then all gather the weights. The same bits as without, and the same checkpoints; with P processes a
  /// P-th of the state in each, and half as many bytes again between them. Nothing changes in a single process.
  bool divide_state = false;
  bool operator==(const OptimizerOptions&) const = default;
};

/// One replica's handle on the optimiser that all replicas share. The state (momenta, ...) exists once a process.
class Optimizer {
 public:
  Optimizer() = default;

  /// The rules, one a parameter group. All replicas must set the same: step() compares.
  std::vector<Rule>& rules() { return rules_; }
  const std::vector<Rule>& rules() const { return rules_; }
  /// The rate of the first group, and of all groups.
  double lr() const;
  void set_lr(double lr);

  /// The rate of update number `step` (0, 1, ...) as a factor of each group's initial rate: see schedule.h.
  void schedule(std::function<double(int64_t)> factor);

  /// How many updates were made; updates left out by loss scaling don't count.
  int64_t steps() const;
  /// The factor by which losses are multiplied now; 1 without loss scaling.
  double loss_scale() const;

  /// Everything that training on depends on: "NAME.exp_avg", "NAME.step", ... of every parameter, "steps" and
  /// "loss_scale". Copies, on the CPU. Throws Error where a part of it lies in other processes (divide_state, or the
  /// residuals of a wire): Replica::state_dict, which all call, has it all.
  std::map<std::string, at::Tensor> state_dict() const;
  /// Throws Error that lists what is missing, unexpected or of another shape. Called by one replica of each process,
  /// or by all, and then comes me.barrier(), so that nobody steps before; the values must be the same everywhere, and
  /// each process takes its part. Where processes hold parts of the network it takes them in the first step, and they
  /// must not change till then.
  void load_state_dict(const std::map<std::string, at::Tensor>& state) const;

 private:
  friend class Replica;
  std::shared_ptr<OptimizerState> state_;
  std::vector<Rule> rules_;
  std::vector<double> initial_lr_;
  std::function<double(int64_t)> schedule_;
};

}  // namespace lockstep::parallel
