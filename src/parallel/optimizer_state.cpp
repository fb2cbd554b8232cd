// SPDX-License-Identifier: Apache-2.0
#include "parallel/optimizer_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep::parallel {
namespace {

// Large enough for a message to run at full speed, small enough that the last one is soon over.
constexpr int64_t kBucketBytes = 4 << 20;

std::vector<at::Tensor> weights_of(const std::vector<OptimizedParameter>& parameters) {
  std::vector<at::Tensor> weights;
  for (const auto& parameter : parameters) weights.push_back(parameter.weight);
  return weights;
}

std::vector<std::vector<at::Tensor>> leaves_of(const std::vector<OptimizedParameter>& parameters, int64_t members) {
  std::vector<std::vector<at::Tensor>> leaves(members);
  for (int64_t m = 0; m < members; ++m)
    for (const auto& parameter : parameters) leaves[m].push_back(parameter.leaves[m]);
  return leaves;
}

// A dense tensor as the row of memory that it is.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

}  // namespace

OptimizerState::OptimizerState(std::shared_ptr<TeamState> team, std::vector<OptimizedParameter> parameters,
                               std::vector<Rule> rules, const OptimizerOptions& options)
    : team_(std::move(team)),
      options_(options),
      parameters_(std::move(parameters)),
      rules_(std::move(rules)),
      layout_(weights_of(parameters_), at::MemoryFormat::Preserve),
      contributions_(team_->members()),
      used_(parameters_.size()),
      numbers_(parameters_.size()) {
  for (const auto& parameter : parameters_) {
    const Rule& rule = rules_[parameter.group];
    has_norms_ |= needs_norms(rule, parameter.weight) || std::holds_alternative<Lamb>(rule);
    auto& state = state_.emplace_back();
    for (size_t k = 0; k < state_names(rule).size(); ++k)
      state[k] = at::zeros({parameter.weight.numel()}, parameter.weight.options());
    if (const auto* adagrad = std::get_if<Adagrad>(&rule)) state[0].fill_(adagrad->initial_accumulator_value);
  }
  if (options_.initial_scale > 0) loss_scale_ = options_.initial_scale;
  // Gradients become ready from the last parameter to the first, until a step has shown the true order.
  std::vector<int64_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  plan(order);
}

void OptimizerState::plan(std::span<const int64_t> order) {
  exchange_.reset();  // its hooks go before others come
  exchange_ = std::make_unique<GradientExchange>(*team_, GradientPlan::make(layout_, order, kBucketBytes),
                                                 leaves_of(parameters_, team_->members()));
  slices_.clear();
  for (size_t p = 0; p < exchange_->plan().pieces.size(); ++p) slices_.push_back(slice(static_cast<int64_t>(p)));
  norms_.resize(slices_.size());
}

RuleSlice OptimizerState::slice(int64_t number) const {
  const Piece& piece = exchange_->plan().pieces[number];
  RuleSlice slice;
  slice.weight = flat(parameters_[piece.parameter].weight).narrow(0, piece.begin, piece.size());
  for (size_t k = 0; k < slice.state.size(); ++k)
    if (const auto& state = state_[piece.parameter][k]; state.defined())
      slice.state[k] = state.narrow(0, piece.begin, piece.size());
  return slice;
}

void OptimizerState::check_handles() const {
  for (const auto& contribution : contributions_) {
    const auto& mine = contribution.handle->rules();
    require(std::ranges::equal(mine, contributions_[0].handle->rules(),
                               [](const Rule& a, const Rule& b) { return a == b; }),
            "step", "replicas have set different rules (learning rates ", learning_rate(mine[0]), " and ",
            learning_rate(contributions_[0].handle->rules()[0]), " in the first group), expected the same on all");
  }
}

// Weights, losses and who used which parameter travel together, in one small exchange after the gradients.
void OptimizerState::sum_contributions() {
  const int64_t members = team_->members();
  const auto count = static_cast<int64_t>(parameters_.size());
  auto rows = at::zeros({members, 2 + count}, at::kDouble);
  auto values = rows.accessor<double, 2>();
  for (int64_t m = 0; m < members; ++m) {
    values[m][0] = contributions_[m].weight;
    values[m][1] = contributions_[m].loss;
    for (int64_t p = 0; p < count; ++p) values[m][2 + p] = parameters_[p].leaves[m].grad().defined();
  }
  const auto sums = team_->sum_rows(rows, team_->gradients);
  const auto* total = sums.const_data_ptr<double>();
  require(total[0] > 0, "step", "the replicas' weights add up to ", total[0], ", expected a positive number");
  result_ = {total[1] / total[0], total[0], 0, true};
  gradient_scale_ = 1 / (total[0] * loss_scale_);
  for (int64_t p = 0; p < count; ++p) used_[p] = total[2 + p] > 0;
}

Job OptimizerState::step() {
  check_handles();
  rules_ = contributions_[0].handle->rules();
  sum_contributions();
  const bool global = options_.clip_norm > 0 || options_.clip_value > 0 || options_.initial_scale > 0 || has_norms_;
  if (global) return staged();
  ++steps_;
  return fused();
}

Job OptimizerState::fused() {
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (used_[p])
      numbers_[p] =
          numbers_of(rules_[parameters_[p].group], ++parameters_[p].updates, gradient_scale_, parameters_[p].weight);
  return {static_cast<int64_t>(slices_.size()),
          [this](int64_t number) {
            const Piece& piece = exchange_->plan().pieces[number];
            RuleSlice slice = slices_[number];
            const auto scratch = at::empty({piece.size()}, slice.weight.options());
            slice.gradient = exchange_->sum(number, scratch);
            if (used(piece)) apply(rule(piece), numbers_[piece.parameter], slice);
          },
          [this] { return finish(); }};
}

// Everything is done with this step's gradients, and no replica has begun the next step.
Job OptimizerState::finish() {
  exchange_->reset();
  if (!follows_arrivals_ && team_->has_other_processes()) {
    follows_arrivals_ = true;
    // Replica 0's order, so that it does not depend on the placement.
    const auto order = exchange_->arrival_order();
    auto shared = at::tensor(order, at::kLong);
    team_->control.broadcast(shared, 0).wait();
    plan({shared.const_data_ptr<int64_t>(), order.size()});
  }
  return {};
}

Job OptimizerState::staged() {
  return {static_cast<int64_t>(slices_.size()), [this](int64_t piece) { add_piece(piece); },
          [this] { return judge(); }};
}

void OptimizerState::add_piece(int64_t number) {
  const at::NoGradGuard no_grad;
  RuleSlice& slice = slices_[number];
  const Piece& piece = exchange_->plan().pieces[number];
  slice.gradient = exchange_->sum(number, at::empty({piece.size()}, slice.weight.options()));
  if (gradient_scale_ != 1) slice.gradient.mul_(gradient_scale_);
  if (options_.clip_value > 0) slice.gradient.clamp_(-options_.clip_value, options_.clip_value);
  norms_[number] = {needs_norms(rule(piece), parameters_[piece.parameter].weight) ? sum_squares(slice.weight) : 0,
                    sum_squares(slice.gradient)};
}

TensorNorms OptimizerState::norms_of(int64_t parameter) const {
  TensorNorms sum;
  for (const int64_t piece : exchange_->plan().pieces_of[parameter]) {
    sum.weight += norms_[piece].weight;
    sum.direction += norms_[piece].direction;
  }
  return sum;
}

// All gradients are there: decides on the update.
Job OptimizerState::judge() {
  double squares = 0;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (used_[p]) squares += norms_of(static_cast<int64_t>(p)).direction;
  const double norm = std::sqrt(squares);
  if (options_.clip_norm > 0) result_.gradient_norm = norm;
  if (options_.initial_scale > 0) {
    result_.updated = std::isfinite(norm);
    if (!result_.updated) {
      loss_scale_ /= 2;
      good_steps_ = 0;
      return finish();
    }
    if (++good_steps_ == options_.growth_interval) {
      loss_scale_ *= 2;
      good_steps_ = 0;
    }
  }
  ++steps_;
  const double coefficient =
      options_.clip_norm > 0 && norm > options_.clip_norm ? options_.clip_norm / (norm + 1e-6) : 1;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (used_[p])
      numbers_[p] =
          numbers_of(rules_[parameters_[p].group], ++parameters_[p].updates, coefficient, parameters_[p].weight);
  const auto count = static_cast<int64_t>(slices_.size());
  const auto update = [this, count]() -> Job {
    for (size_t p = 0; has_norms_ && p < parameters_.size(); ++p)
      if (const Rule& rule = rules_[parameters_[p].group]; used_[p] && needs_norms(rule, parameters_[p].weight))
        numbers_[p] = with_norms(rule, numbers_[p], norms_of(static_cast<int64_t>(p)));
    return {count,
            [this](int64_t number) {
              const Piece& piece = exchange_->plan().pieces[number];
              if (used(piece)) apply(rule(piece), numbers_[piece.parameter], slices_[number]);
              slices_[number].gradient.reset();
            },
            [this] { return finish(); }};
  };
  return {count,
          [this](int64_t number) {
            const Piece& piece = exchange_->plan().pieces[number];
            if (!std::holds_alternative<Lamb>(rule(piece)) || !used(piece)) return;
            prepare(rule(piece), numbers_[piece.parameter], slices_[number]);
            norms_[number].direction = sum_squares(slices_[number].gradient);
          },
          update};
}

void OptimizerState::clear(int64_t member) {
  exchange_->clear(member);
  contributions_[member] = {};
  // Weights have changed under any graph that still holds them: autograd is to say so rather than use them.
  for (const auto& parameter : parameters_) parameter.leaves[member].unsafeGetTensorImpl()->bump_version();
}

std::map<std::string, at::Tensor> OptimizerState::state_dict() const {
  std::map<std::string, at::Tensor> out;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const auto& parameter = parameters_[p];
    const auto names = state_names(rules_[parameter.group]);
    for (size_t k = 0; k < names.size(); ++k)
      out[parameter.name + "." + names[k]] = state_[p][k]
                                                 .as_strided(parameter.weight.sizes(), parameter.weight.strides())
                                                 .to(at::kCPU, state_[p][k].scalar_type(), false, true)
                                                 .contiguous();
    out[parameter.name + ".step"] = at::scalar_tensor(parameter.updates, at::kLong);
  }
  out["steps"] = at::scalar_tensor(steps_, at::kLong);
  out["loss_scale"] = at::scalar_tensor(loss_scale_, at::kDouble);
  out["good_steps"] = at::scalar_tensor(good_steps_, at::kLong);
  return out;
}

void OptimizerState::load_state_dict(const std::map<std::string, at::Tensor>& state) {
  const auto expected = state_dict();
  std::string wrong;
  for (const auto& [name, tensor] : expected) {
    const auto found = state.find(name);
    if (found == state.end())
      wrong += text("\n  missing: ", name);
    else if (found->second.sizes() != tensor.sizes())
      wrong += text("\n  ", name, ": got ", found->second.sizes(), ", expected ", tensor.sizes());
  }
  for (const auto& [name, tensor] : state)
    if (!expected.contains(name)) wrong += text("\n  unexpected: ", name);
  require(wrong.empty(), "load_state_dict", "the state is not of this optimiser:", wrong);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    auto& parameter = parameters_[p];
    const auto names = state_names(rules_[parameter.group]);
    for (size_t k = 0; k < names.size(); ++k)
      state_[p][k]
          .as_strided(parameter.weight.sizes(), parameter.weight.strides())
          .copy_(state.at(parameter.name + "." + names[k]));
    parameter.updates = state.at(parameter.name + ".step").item<int64_t>();
  }
  steps_ = state.at("steps").item<int64_t>();
  loss_scale_ = state.at("loss_scale").item<double>();
  good_steps_ = state.at("good_steps").item<int64_t>();
}

}  // namespace lockstep::parallel
