// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/optimizer_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/flat.h"
#include "parallel/optim/rules/sum_squares.h"

namespace lockstep::parallel {
namespace {

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

std::vector<CompressedParameter> compressed(const std::vector<OptimizedParameter>& parameters) {
  std::vector<CompressedParameter> out;
  for (const auto& parameter : parameters) out.push_back({parameter.name, parameter.weight, parameter.leaves});
  return out;
}

std::optional<at::ScalarType> rounding_of(const Wire& wire) {
  const auto* rounded = std::get_if<RoundedWire>(&wire);
  if (rounded == nullptr) return std::nullopt;
  return rounded->type == RoundedWire::Type::bf16 ? at::kBFloat16 : at::kHalf;
}

}  // namespace

OptimizerState::OptimizerState(std::shared_ptr<TeamState> team, std::vector<OptimizedParameter> parameters,
                               std::vector<Rule> rules, const OptimizerOptions& options)
    : team_(std::move(team)),
      options_(options),
      parameters_(std::move(parameters)),
      rules_(std::move(rules)),
      batches_(on_gpu::batches(team_->device)),
      contributions_(team_->members()),
      used_(parameters_.size()),
      updates_(parameters_.size()) {
  check(options_.wire);
  for (OptimizedParameter& parameter : parameters_) parameter.number = numbers_++;
  lay_out();
  if (options_.divide_state && team_->has_other_processes()) division_.emplace(*team_, flats_);
  compressor_ = make_compressor(*team_, options_.wire, compressed(parameters_));
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const OptimizedParameter& parameter = parameters_[p];
    const Rule& rule = rules_[parameter.group];
    has_norms_ |= needs_norms(rule, parameter.weight) || has_direction(rule);
    auto& state = state_.emplace_back();
    for (size_t k = 0; k < state_names(rule).size(); ++k)
      state[k] = untouched_zeros(kept(static_cast<int64_t>(p)).size(), parameter.weight.options());
    if (const double initial = initial_state(rule); initial != 0) state[0].fill_(initial);
  }
  if (options_.initial_scale > 0) loss_scale_ = options_.initial_scale;
  // Gradients become ready from the last parameter to the first, until a step has shown the true order.
  std::vector<int64_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  plan(order, GradientExchange::arrivals_of(*team_, leaves_of(parameters_, team_->members())));
}

void OptimizerState::lay_out() {
  layout_ = FlatLayout(weights_of(parameters_), at::MemoryFormat::Preserve);
  flats_.clear();
  for (const auto& parameter : parameters_) flats_.push_back(flat(parameter.weight));
}

void OptimizerState::plan(std::span<const int64_t> order, GradientArrivals arrivals) {
  exchange_.reset();  // its hooks go before others come
  exchange_ =
      std::make_unique<GradientExchange>(*team_, GradientPlan::make(layout_, order, bucket_bytes(team_->device)),
                                         std::move(arrivals), rounding_of(options_.wire));
  slices_.clear();
  for (size_t p = 0; p < exchange_->plan().pieces.size(); ++p) slices_.push_back(slice(static_cast<int64_t>(p)));
  norms_.resize(slices_.size());
  prepare_next();
}

// How the gradients of the step that comes next travel.
void OptimizerState::prepare_next() {
  compresses_ = compressor_ != nullptr && steps_ >= start_of(options_.wire);
  exchange_->hold(compresses_ || (team_->has_process_parts() && !is_settled_), !compresses_);
}

Interval OptimizerState::kept(int64_t parameter) const {
  return division_ ? division_->mine(parameter) : Interval{0, flats_[parameter].numel()};
}

bool OptimizerState::keeps(const Piece& piece) const {
  return !division_ || division_->owns(piece.parameter, piece.begin);
}

RuleSlice OptimizerState::slice(int64_t number) {
  const Piece& piece = exchange_->plan().pieces[number];
  RuleSlice slice;
  if (batches_) slice.batch = &batch_;
  slice.weight = flats_[piece.parameter].narrow(0, piece.begin, piece.size());
  for (size_t k = 0; keeps(piece) && k < slice.state.size(); ++k)
    if (const auto& state = state_[piece.parameter][k]; state.defined())
      slice.state[k] = state.narrow(0, piece.begin - kept(piece.parameter).begin, piece.size());
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

void OptimizerState::check_memory(int64_t member) const {
  for (const OptimizedParameter& parameter : parameters_) {
    const at::Tensor &leaf = parameter.leaves[member], &weight = parameter.weight;
    if (!leaf.unsafeGetTensorImpl()->storage_initialized()) continue;  // of another part of the network
    require(
        leaf.scalar_type() == weight.scalar_type() && leaf.const_data_ptr() == weight.const_data_ptr(), "step",
        "the parameter ", parameter.name, " no longer lies in the memory that the optimiser updates, expected it ",
        "there: load, convert and share networks before the optimiser is made, or copy values into their parameters");
  }
}

// What is kept of each weight follows from the rules that the optimiser was made with.
void OptimizerState::take_rules() {
  const auto& next = contributions_[0].handle->rules();
  require(next.size() == rules_.size(), "step", next.size(), " rules, expected ", rules_.size(), ", as there were");
  for (size_t g = 0; g < next.size(); ++g) {
    if (next[g] == rules_[g]) continue;
    require(
        next[g].index() == rules_[g].index() && state_names(next[g]) == state_names(rules_[g]), "step", "group ", g,
        "'s rule keeps other tensors (", name_of(next[g]), " for ", name_of(rules_[g]),
        ", or a momentum, amsgrad or centered set or unset), expected those of the rule that the optimiser was made ",
        "with: make another one");
    check(next[g]);
  }
  rules_ = next;
}

void OptimizerState::add_sum(const std::string& name) {
  require(std::ranges::count(sum_names_, name) == 0, "step_sum", "the optimiser has a sum '", name,
          "' already, expected another name");
  sum_names_.push_back(name);
  for (Contribution& contribution : contributions_) contribution.numbers.push_back(0);
}

// Weights, losses and who used which parameter travel together, in one small exchange after the gradients.
void OptimizerState::sum_contributions() {
  const int64_t members = team_->members();
  const auto count = static_cast<int64_t>(parameters_.size());
  const auto numbers = static_cast<int64_t>(sum_names_.size());
  read_later(contributions_);
  // Processes do not see each other's rules. If these are the same, their sum is exactly so many times one.
  const double rules = hash_of(rules_);
  auto rows = at::zeros({members, 3 + numbers + count}, at::kDouble);
  auto* next = rows.mutable_data_ptr<double>();
  for (int64_t m = 0; m < members; ++m) {
    *next++ = contributions_[m].weight;
    *next++ = rules;
    next = std::ranges::copy(contributions_[m].numbers, next).out;
    for (int64_t p = 0; p < count; ++p) *next++ = exchange_->arrivals().came(m, p);
  }
  const auto sums = team_->sum_rows(rows, team_->gradients);
  team_->agree_over_parts(sums.narrow(0, 0, 3 + numbers));
  const auto* total = sums.const_data_ptr<double>();
  const auto replicas = static_cast<double>(team_->placement.replicas());
  require(total[1] == replicas * rules, "step", "processes have set different rules (learning rate ",
          learning_rate(rules_[0]), " in the first group here), expected the same on all");
  require(total[0] > 0, "step", "the replicas' weights add up to ", total[0], ", expected a positive number");
  result_ = {total[2] / total[0], total[0], 0, true, {total + 3, total + 3 + numbers}};
  gradient_scale_ = 1 / (total[0] * loss_scale_);
  for (int64_t p = 0; p < count; ++p) used_[p] = total[3 + numbers + p] > 0;
}

CrewWork OptimizerState::step() {
  check_handles();
  take_rules();
  if (team_->has_process_parts() && !is_settled_) keep_own();
  sum_contributions();
  if (team_->has_process_parts()) check_common();
  const bool global = options_.clip_norm > 0 || options_.clip_value > 0 || options_.initial_scale > 0 || has_norms_;
  if (compresses_)
    return compressor_->exchange(exchange_->plan(), used_, gradient_scale_, [this] {
      gradient_scale_ = 1;  // these are averages
      return staged();
    });
  if (global) return staged();
  ++steps_;
  return fused();
}

TensorUpdate OptimizerState::next_update(size_t parameter, double gradient_scale) {
  OptimizedParameter& p = parameters_[parameter];
  return {.number = ++p.updates, .gradient_scale = gradient_scale, .is_matrix = p.weight.dim() > 1};
}

// All pieces, by all threads; on a GPU by one, whose launches are for many pieces.
CrewWork OptimizerState::of_pieces(std::function<void(int64_t)> run, std::function<CrewWork()> next) {
  const auto count = static_cast<int64_t>(slices_.size());
  if (!batches_) return {count, std::move(run), std::move(next)};
  const auto run_all = [this, count, run = std::move(run)](int64_t) {
    for (int64_t number = 0; number < count; ++number) run(number);
    batch_.run();
  };
  return {1, run_all, std::move(next)};
}

CrewWork OptimizerState::fused() {
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (used_[p]) updates_[p] = next_update(p, gradient_scale_);
  return of_pieces(
      [this](int64_t number) {
        const Piece& piece = exchange_->plan().pieces[number];
        if (!keeps(piece)) return exchange_->wait(number);
        RuleSlice slice = slices_[number];
        const auto scratch = at::empty({piece.size()}, slice.weight.options());
        slice.gradient = exchange_->sum(number, scratch);
        if (used(piece)) apply(rule(piece), updates_[piece.parameter], slice);
      },
      [this] { return spread(); });
}

// Where each process has updated its part of the weights, all get them.
CrewWork OptimizerState::spread() {
  if (division_) division_->gather(team_->gradients, flats_);
  return finish();
}

// Everything is done with this step's gradients, and no replica has begun the next step.
CrewWork OptimizerState::finish() {
  exchange_->reset();
  if (compresses_) result_.updated ? compressor_->commit() : compressor_->drop();
  prepare_next();
  if (!is_settled_ && team_->has_other_processes())
    plan(first_order(), GradientExchange::arrivals_of(*team_, exchange_->arrivals().leaves()));
  is_settled_ = true;
  return {};
}

// In which gradients came in the first step: replica 0's order, so that it does not depend on the placement.
std::vector<int64_t> OptimizerState::first_order() const {
  const auto came = exchange_->arrivals().order(0);
  std::vector<int64_t> order(came.begin(), came.end());
  if (!team_->has_other_processes()) return order;
  auto shared = at::tensor(order, at::kLong);
  team_->control.broadcast(shared, 0).wait();
  order.assign(shared.const_data_ptr<int64_t>(), shared.const_data_ptr<int64_t>() + shared.numel());
  return order;
}

CrewWork OptimizerState::staged() {
  return of_pieces(
      [this](int64_t piece) {
        add_piece(piece);
        if (!batches_) treat({piece, piece + 1});
      },
      [this] {
        if (batches_) treat({0, static_cast<int64_t>(slices_.size())});
        return judge();
      });
}

void OptimizerState::add_piece(int64_t number) {
  const at::NoGradGuard no_grad;
  RuleSlice& slice = slices_[number];
  const Piece& piece = exchange_->plan().pieces[number];
  const auto scratch = at::empty({piece.size()}, slice.weight.options());
  slice.gradient = compresses_ ? scratch : exchange_->sum(number, scratch);
  if (compresses_) compressor_->sum(number, scratch);
}

// Gradients become what the rule is to see, and are measured: those of several pieces together.
void OptimizerState::treat(Interval pieces) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients, weights;
  std::vector<int64_t> measured;
  for (int64_t number = pieces.begin; number < pieces.end; ++number) {
    const Piece& piece = exchange_->plan().pieces[number];
    gradients.push_back(slices_[number].gradient);
    norms_[number] = {};
    if (!needs_norms(rule(piece), parameters_[piece.parameter].weight)) continue;
    weights.push_back(slices_[number].weight);
    measured.push_back(number);
  }
  if (gradient_scale_ != 1) at::_foreach_mul_(gradients, gradient_scale_);
  if (options_.clip_value > 0) {
    at::_foreach_clamp_min_(gradients, -options_.clip_value);
    at::_foreach_clamp_max_(gradients, options_.clip_value);
  }
  const std::vector<double> of_gradients = sums_of_squares(gradients), of_weights = sums_of_squares(weights);
  for (int64_t number = pieces.begin; number < pieces.end; ++number)
    norms_[number].direction = of_gradients[number - pieces.begin];
  for (size_t k = 0; k < measured.size(); ++k) norms_[measured[k]].weight = of_weights[k];
}

// All gradients are there: decides on the update.
CrewWork OptimizerState::judge() {
  const double norm = std::sqrt(sum_squares_of_all());
  if (options_.clip_norm > 0) result_.gradient_norm = norm;
  if (options_.initial_scale > 0) {
    result_.updated = std::isfinite(norm);
    if (!result_.updated) {
      loss_scale_ /= 2;
      good_steps_ = 0;
      return finish();
    }
    if (++good_steps_ >= options_.growth_interval) {
      loss_scale_ *= 2;
      good_steps_ = 0;
    }
  }
  ++steps_;
  const double coefficient =
      options_.clip_norm > 0 && norm > options_.clip_norm ? options_.clip_norm / (norm + 1e-6) : 1;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (used_[p]) updates_[p] = next_update(p, coefficient);
  const auto update = [this]() -> CrewWork {
    if (batches_) measure_directions({0, static_cast<int64_t>(slices_.size())});
    if (division_ && has_norms_) share_norms();
    for (size_t p = 0; has_norms_ && p < parameters_.size(); ++p)
      if (const Rule& rule = rules_[parameters_[p].group]; used_[p] && needs_norms(rule, parameters_[p].weight))
        updates_[p].ratio = ratio_of(rule, updates_[p], norms_of(static_cast<int64_t>(p)));
    return of_pieces(
        [this](int64_t number) {
          const Piece& piece = exchange_->plan().pieces[number];
          if (used(piece) && keeps(piece)) apply(rule(piece), updates_[piece.parameter], slices_[number]);
          slices_[number].gradient.reset();
        },
        [this] { return spread(); });
  };
  return of_pieces(
      [this](int64_t number) {
        const Piece& piece = exchange_->plan().pieces[number];
        if (!has_direction_of_its_own(piece)) return;
        prepare(rule(piece), updates_[piece.parameter], slices_[number]);
        if (!batches_) measure_directions({number, number + 1});
      },
      update);
}

void OptimizerState::clear(int64_t member) {
  exchange_->clear(member);
  contributions_[member] = {.numbers = std::vector<double>(1 + sum_names_.size())};
  // Weights have changed under any graph that still holds them: autograd is to say so rather than use them.
  for (const auto& parameter : parameters_) parameter.leaves[member].unsafeGetTensorImpl()->bump_version();
}

}  // namespace lockstep::parallel
