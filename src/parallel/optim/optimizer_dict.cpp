// SPDX-License-Identifier: Apache-2.0
// What of an optimiser is saved, and where it lies.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "parallel/optim/optimizer_state.h"

namespace lockstep::parallel {

// A copy on the CPU, in the weight's shape.
at::Tensor OptimizerState::in_shape(int64_t p, const at::Tensor& flat) const {
  const at::Tensor& weight = parameters_[p].weight;
  return flat.as_strided(weight.sizes(), weight.strides(), flat.storage_offset())
      .to(at::kCPU, flat.scalar_type(), false, true)
      .contiguous();
}

void OptimizerState::add_slots(std::map<std::string, at::Tensor>& out, bool gathers) const {
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < state_[0].size(); ++k) {
    std::vector<at::Tensor> wholes(parameters_.size());
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const at::Tensor& mine = state_[p][k];
      if (!mine.defined()) continue;
      wholes[p] = gathers ? at::zeros_like(flats_[p]) : mine;
      const Interval interval = kept(static_cast<int64_t>(p));
      if (gathers) wholes[p].narrow(0, interval.begin, interval.size()).copy_(mine);
    }
    if (gathers) division_->gather(team_->control, wholes);
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (wholes[p].defined())
        out[parameters_[p].name + "." + state_names(rules_[parameters_[p].group])[k]] =
            in_shape(static_cast<int64_t>(p), wholes[p]);
  }
}

std::map<std::string, at::Tensor> OptimizerState::common_state() {
  take_loaded();
  std::map<std::string, at::Tensor> out;
  if (!division_) add_slots(out, false);
  for (const auto& parameter : parameters_)
    out[parameter.name + ".step"] = at::scalar_tensor(parameter.updates, at::kLong);
  out["steps"] = at::scalar_tensor(steps_, at::kLong);
  out["loss_scale"] = at::scalar_tensor(loss_scale_, at::kDouble);
  out["good_steps"] = at::scalar_tensor(good_steps_, at::kLong);
  return out;
}

std::map<std::string, at::Tensor> OptimizerState::whole_state() {
  auto out = common_state();
  if (division_) add_slots(out, true);
  if (compressor_) out.merge(compressor_->state());
  return out;
}

bool OptimizerState::is_spread() const {
  return (team_->has_other_processes() && (division_ || compressor_)) || team_->has_process_parts();
}

std::map<std::string, at::Tensor> OptimizerState::state_dict() {
  require(!is_spread(), "state_dict", "a part of the state lies in other processes (",
          team_->has_process_parts() ? "split " + to_string(team_->options.split)
          : division_                ? "divide_state"
                                     : to_string(options_.wire),
          "), expected Replica::state_dict(optimizer), called by all replicas");
  return whole_state();
}

bool OptimizerState::is_of_another_part(const std::string& name) const {
  return std::ranges::any_of(others_, [&](const std::string& other) { return name.starts_with(other + "."); });
}

std::map<std::string, std::vector<int64_t>> OptimizerState::state_sizes() const {
  std::map<std::string, std::vector<int64_t>> out;
  if (compressor_) out = compressor_->state_sizes();
  for (const char* name : {"steps", "loss_scale", "good_steps"}) out[name] = {};
  for (const auto& parameter : parameters_) {
    out[parameter.name + ".step"] = {};
    for (const auto& name : state_names(rules_[parameter.group]))
      out[parameter.name + "." + name] = parameter.weight.sizes().vec();
  }
  return out;
}

void OptimizerState::load_state_dict(const std::map<std::string, at::Tensor>& state) {
  const std::lock_guard alone(loading_);
  const at::NoGradGuard no_grad;
  const auto expected = state_sizes();
  std::string wrong;
  for (const auto& [name, sizes] : expected) {
    const auto found = state.find(name);
    if (found == state.end())
      wrong += text("\n  missing: ", name);
    else if (found->second.sizes() != sizes)
      wrong += text("\n  ", name, ": got ", found->second.sizes(), ", expected ", at::IntArrayRef(sizes));
  }
  for (const auto& [name, tensor] : state)
    if (!expected.contains(name) && !is_of_another_part(name)) wrong += text("\n  unexpected: ", name);
  require(wrong.empty(), "load_state_dict", "the state is not of this optimiser:", wrong);
  for (auto& parameter : parameters_) parameter.updates = state.at(parameter.name + ".step").item<int64_t>();
  if (compressor_) compressor_->load_state(state);
  steps_ = state.at("steps").item<int64_t>();
  loss_scale_ = state.at("loss_scale").item<double>();
  good_steps_ = state.at("good_steps").item<int64_t>();
  loaded_ = state;
  if (!team_->has_process_parts() || is_settled_) take_loaded();
  prepare_next();
}

// Where processes are to hold parts, in the first step: then it is known which parameters they keep.
void OptimizerState::take_loaded() {
  if (loaded_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto state = std::exchange(loaded_, {});
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const auto& parameter = parameters_[p];
    const auto names = state_names(rules_[parameter.group]);
    const Interval interval = kept(static_cast<int64_t>(p));
    for (size_t k = 0; k < names.size(); ++k) {
      const auto whole = at::empty_like(flats_[p]);
      whole.as_strided(parameter.weight.sizes(), parameter.weight.strides())
          .copy_(state.at(parameter.name + "." + names[k]));
      state_[p][k].copy_(whole.narrow(0, interval.begin, interval.size()));
    }
  }
}

}  // namespace lockstep::parallel
