// SPDX-License-Identifier: Apache-2.0
// What the code inside Team::run calls.
#include "lockstep/parallel/replica.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/draws.h"
#include "lockstep/context/timeline_scope.h"
#include "lockstep/numerics/tree.h"
#include "parallel/optim/optimizer_state.h"
#include "parallel/optim/owned_parameters.h"
#include "parallel/team/agreement.h"
#include "parallel/team/audit/audit.h"
#include "parallel/team/divergence.h"
#include "parallel/team/replica_state.h"
#include "parallel/team/share.h"

namespace lockstep::parallel {
namespace {

template <class Offer>
void check_options(const char* operation, std::span<const Offer* const> all) {
  for (const Offer* one : all)
    require(one->options == all[0]->options, operation,
            "replicas have passed different options, expected the same on all");
}

// What an optimiser can't do where a process holds a part of the network.
void check_for_parts(const TeamState& team, const OptimizerOptions& options) {
  const std::string split = to_string(team.options.split);
  require(!options.divide_state, "optimizer", "split ", split,
          " in processes divides the state already, and divide_state would again: leave it out");
  require(std::holds_alternative<RoundedWire>(options.wire) || options.wire == Wire{}, "optimizer", "wire ",
          to_string(options.wire), " with split ", split, " in processes, expected none, bf16 or fp16");
  require(team.networks.size() == 1 && std::ranges::count(team.networks[0]->has_optimizer, true) == 0, "optimizer",
          "a second optimiser with split ", split,
          " in processes, expected one of all parameters, in groups where they differ");
}

Contribution& contribution_with(size_t sum, OptimizerState* optimizer, int64_t member) {
  require(optimizer != nullptr, "add", "the optimiser is empty, expected one made by optimizer()");
  Contribution& mine = optimizer->contribution(member);
  require(Contribution::number_of(sum) < mine.numbers.size(), "add",
          "the sum is not one of this optimiser, expected one that step_sum() gave");
  return mine;
}

}  // namespace

Replica::Replica(const std::shared_ptr<TeamState>& team, int64_t member)
    : state_(new State{team, member, CrewPeers(*team, member), Draws::current()}) {
  if (team->process_pipeline) state_->waiting.emplace(team->process_pipeline->unfilled());
}

Replica::~Replica() = default;

int64_t Replica::number() const {
  return state_->team->block.begin + state_->member;
}
int64_t Replica::replicas() const {
  return state_->team->placement.replicas();
}
at::Device Replica::device() const {
  return state_->team->device;
}

Interval Replica::share_of(int64_t examples) const {
  return Placement::even(examples, replicas()).block(number());
}

at::Tensor Replica::share_of(const at::Tensor& batch) const {
  const Interval mine = share_of(batch.size(0));
  return batch.narrow(0, mine.begin, mine.size());
}

std::shared_ptr<torch::nn::Module> Replica::share_module(const std::shared_ptr<torch::nn::Module>& module,
                                                         const ShareOptions& options) {
  struct Offer {
    const std::shared_ptr<torch::nn::Module>& network;
    const ShareOptions& options;
  };
  TeamState& team = *state_->team;
  team.meet<Offer>(state_->member, "share", {module, options}, [&](std::span<const Offer* const> all) -> CrewWork {
    check_options("share", all);
    std::vector<std::shared_ptr<torch::nn::Module>> networks;
    for (const Offer* one : all) networks.push_back(one->network);
    team.networks.push_back(share_networks(team, std::move(networks), options));
    const SharedNetwork& shared = *team.networks.back();
    if (team.pipeline) team.pipeline->take(shared.networks);
    if (team.process_pipeline) team.process_pipeline->take(shared.networks, shared.parameters[0]);
    return {};
  });
  begin_step();
  return team.networks.back()->networks[state_->member];
}

Optimizer Replica::optimizer(const Rule& rule, const OptimizerOptions& options) {
  return optimizer(std::vector<ParameterGroup>{{parameters_without_optimizer(*state_->team, state_->member), rule}},
                   options);
}

Optimizer Replica::optimizer(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options) {
  struct Offer {
    const std::vector<ParameterGroup>& groups;
    const OptimizerOptions& options;
  };
  TeamState& team = *state_->team;
  Optimizer mine;
  for (const auto& group : groups) {
    check(group.rule);
    mine.rules_.push_back(group.rule);
    mine.initial_lr_.push_back(learning_rate(group.rule));
  }
  team.meet<Offer>(state_->member, "optimizer", {groups, options}, [&](std::span<const Offer* const> all) -> CrewWork {
    check_options("optimizer", all);
    if (team.has_process_parts()) check_for_parts(team, options);
    std::vector<const std::vector<ParameterGroup>*> offered;
    for (const Offer* one : all) offered.push_back(&one->groups);
    auto parameters = take_parameters(team, offered);
    agree(team, "optimizer", facts_of(parameters, mine.rules_, options));
    require(team.audit == nullptr || team.made == nullptr, "optimizer",
            "the team audits gradients and has an optimiser already, expected one: gradients that another's step left ",
            "can't be told from these");
    team.made = std::make_shared<OptimizerState>(state_->team, std::move(parameters), mine.rules_, options);
    return {};
  });
  mine.state_ = team.made;
  return mine;
}

// Of a loss that is undefined or has no history there is nothing to compute, but others may be waiting.
void Replica::differentiate(const at::Tensor& loss, double scale) const {
  using Root = std::pair<at::Tensor, at::Tensor>;
  Root mine;
  if (loss.defined() && loss.requires_grad())
    mine = {loss, at::full_like(loss, scale, loss.options().requires_grad(false))};
  if (!state_->team->joins_backward) {
    Pipeline* const pipeline = state_->team->pipeline.get();
    ProcessPipeline* const process_pipeline = state_->team->process_pipeline.get();
    if (mine.first.defined()) {
      if (pipeline != nullptr)
        pipeline->backward(state_->member, mine.first, mine.second);
      else if (process_pipeline != nullptr)
        process_pipeline->backward(state_->member, mine.first, mine.second);
      else
        torch::autograd::backward({mine.first}, {mine.second});
    }
    if (pipeline != nullptr) pipeline->end_backward(state_->member);
    if (process_pipeline != nullptr) process_pipeline->end_backward(state_->member);
    return;
  }
  state_->team->meet<Root>(state_->member, "backward", mine, [](std::span<const Root* const> all) -> CrewWork {
    const PhaseScope computing(Phase::backward);
    torch::autograd::variable_list roots, gradients;
    for (const Root* one : all)
      if (one->first.defined()) {
        roots.push_back(one->first);
        gradients.push_back(one->second);
      }
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    return {};
  });
}

void Replica::collect(const at::Tensor& loss, const Optimizer& optimizer, double weight) const {
  require(optimizer.state_ != nullptr, "backward", "the optimiser is empty, expected one made by optimizer()");
  require(weight >= 0, "backward", "weight is ", weight, ", expected 0 or more");
  const bool none = weight == 0 && !loss.defined();
  require(none || (loss.defined() && loss.numel() == 1), "backward", "the loss is ",
          loss.defined() ? text("of sizes ", loss.sizes()) : "undefined", ", expected one number, or weight 0");
  require(weight == 0 || loss.requires_grad(), "backward",
          "the loss has no history, expected one that was computed from the network's parameters");
  state_->timeline().enter(Phase::backward);
  if (state_->team->audit)
    state_->team->audit->add_pass(state_->member, state_->steps, weight * optimizer.state_->loss_scale());
  // The gradient of a sum over the share; step() divides by the sum of all weights. With weight 0 too: where batch
  // norms are synchronised, the other replicas' backward passes wait for this one's.
  differentiate(loss, weight * optimizer.state_->loss_scale());
  Contribution& mine = optimizer.state_->contribution(state_->member);
  mine.weight += weight;
  if (weight > 0) mine.add(Contribution::kLoss, loss, weight);
}

void Replica::backward(const at::Tensor& loss, const Optimizer& optimizer, double weight) {
  collect(loss, optimizer, weight);
  state_->timeline().enter(Phase::forward);
}

StepResult Replica::step(const at::Tensor& loss, Optimizer& optimizer, double weight) {
  require(optimizer.state_ != nullptr, "step", "the optimiser is empty, expected one made by optimizer()");
  optimizer.state_->exchange().expect(state_->member);
  collect(loss, optimizer, weight);
  return step(optimizer);
}

StepResult Replica::step(Optimizer& optimizer) {
  require(optimizer.state_ != nullptr, "step", "the optimiser is empty, expected one made by optimizer()");
  State& mine = *state_;
  TeamState& team = *mine.team;
  OptimizerState& state = *optimizer.state_;
  mine.timeline().enter(Phase::update);
  for (const auto& network : team.networks) check_unchanged(*network, mine.member);
  state.check_memory(mine.member);
  if (optimizer.schedule_)
    for (size_t g = 0; g < optimizer.rules_.size(); ++g)
      set_learning_rate(optimizer.rules_[g], optimizer.initial_lr_[g] * optimizer.schedule_(state.steps()));
  state.contribution(mine.member).handle = &optimizer;
  state.exchange().complete(mine.member);
  if (team.audit) team.audit->check(mine.member, state, mine.steps);
  team.crew->meet(
      mine.member, "step",
      [&] {
        if (team.pipeline) team.pipeline->cut();
        if (team.process_pipeline) team.process_pipeline->learn_cut();
        team.saved.clear();  // whoever wanted it has it
        return state.step();
      },
      Phase::update);
  mine.end_waiting();
  mine.waiting.reset();
  const StepResult result = state.result();
  state.clear(mine.member);
  ++mine.steps;
  mine.timeline().end_step();
  mine.timeline().begin_step(mine.steps);
  begin_step();
  if (mine.watch_every > 0 && state.steps() % mine.watch_every == 0) compare(optimizer, mine.watch_buffers);
  return result;
}

void Replica::audit_with(LossAgain loss_of) {
  require(loss_of != nullptr, "audit_with", "the function is empty, expected one that computes a loss");
  if (state_->team->audit) state_->team->audit->compute_with(state_->member, std::move(loss_of));
}

StepSum Replica::step_sum(const Optimizer& optimizer, const std::string& name) {
  require(optimizer.state_ != nullptr, "step_sum", "the optimiser is empty, expected one made by optimizer()");
  TeamState& team = *state_->team;
  OptimizerState& state = *optimizer.state_;
  team.meet<std::string>(state_->member, "step_sum", name, [&](std::span<const std::string* const> all) -> CrewWork {
    for (const std::string* one : all)
      require(*one == name, "step_sum", "replicas have named it '", *one, "' and '", name,
              "', expected the same on all");
    agree(team, "step_sum", {text("sum ", name)});
    state.add_sum(name);
    return {};
  });
  StepSum sum;
  sum.index_ = state.sum_names().size() - 1;
  return sum;
}

void Replica::add(const Optimizer& optimizer, const StepSum& to, double value) const {
  Contribution& mine = contribution_with(to.index_, optimizer.state_.get(), state_->member);
  mine.numbers[Contribution::number_of(to.index_)] += value;
}

void Replica::add(const Optimizer& optimizer, const StepSum& to, const at::Tensor& value) const {
  require(value.defined() && value.numel() == 1, "add", "the value is ",
          value.defined() ? text("of sizes ", value.sizes()) : "undefined", ", expected one number");
  Contribution& mine = contribution_with(to.index_, optimizer.state_.get(), state_->member);
  mine.add(Contribution::number_of(to.index_), value, 1);
}

int64_t Replica::steps() const {
  return state_->steps;
}

void Replica::set_steps(int64_t steps) {
  require(steps >= 0, "set_steps", "steps is ", steps, ", expected 0 or more");
  state_->steps = steps;
  state_->timeline().renumber(steps);
  begin_step();
}

Timings Replica::timings() const {
  return state_->timeline().timings();
}

void Replica::begin_step() {
  state_->draws->begin(state_->team->draws_of(state_->steps, number()));
  if (state_->team->audit) state_->team->audit->begin_step(state_->member, state_->steps);
}

at::Tensor Replica::all_gather(const at::Tensor& mine) {
  at::Tensor rows = state_->peers.all_gather(mine);
  TeamState& team = *state_->team;
  if (!team.has_process_parts()) return rows;
  team.crew->meet(state_->member, "all_gather", [&]() -> CrewWork {
    team.agreed = rows.clone();
    team.agree_over_parts(team.agreed);
    return {};
  });
  return team.agreed;
}

at::Tensor Replica::sum(const at::Tensor& mine) {
  const auto rows = all_gather(mine.detach().to(at::kCPU, at::kDouble).flatten());
  const auto sum = merge_as_tree(
      replicas(), [&](int64_t r) { return rows[r].clone(); },
      [](at::Tensor& left, const at::Tensor& right) { left.add_(right); });
  return sum.view(mine.sizes());
}

void Replica::barrier() {
  TeamState& team = *state_->team;
  team.crew->meet(state_->member, "barrier", [&]() -> CrewWork {
    if (team.everyone.size() > 1) team.everyone.barrier().wait();
    return {};
  });
}

at::Tensor Replica::evaluate(int64_t examples, int64_t batch, const std::function<at::Tensor(Interval)>& body) {
  require(examples >= 1 && batch >= 1, "evaluate", examples, " examples in batches of ", batch,
          ", expected at least 1 of each");
  const PhaseScope evaluating(Phase::evaluate);
  state_->end_waiting();
  // Parts may be frozen, so each module gets back its own mode; those inside of it come after it.
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes;
  for (const auto& network : state_->team->networks) {
    for (const auto& module : network->networks[state_->member]->modules())
      modes.emplace_back(module, module->is_training());
    network->networks[state_->member]->eval();
  }
  at::Tensor sums;
  {
    const at::NoGradGuard no_grad;
    const Interval mine = share_of(examples);
    if (mine.size() == 0) sums = at::zeros_like(body(mine), at::kDouble);
    for (int64_t at = mine.begin; at < mine.end; at += batch) {
      const auto part = body({at, std::min(mine.end, at + batch)}).detach().to(at::kCPU, at::kDouble);
      sums = sums.defined() ? sums.add_(part) : part.clone();
    }
  }
  for (const auto& [module, trained] : modes) module->train(trained);
  return sum(sums);
}

void Replica::watch_divergence(const Optimizer& optimizer, int64_t every, bool buffers) {
  require(every >= 0, "watch_divergence", "every is ", every, ", expected 0 or more");
  state_->watch_every = every;
  state_->watch_buffers = buffers;
  state_->end_waiting();
  if (every == 0) compare(optimizer, buffers);
}

void Replica::compare(const Optimizer& optimizer, bool buffers) {
  NamedTensors tensors;
  for (const auto& parameter : optimizer.state_->parameters()) tensors.emplace_back(parameter.name, parameter.weight);
  for (const auto& [name, tensor] : optimizer.state_->common_state()) tensors.emplace_back(name, tensor);
  const size_t of_processes = tensors.size();
  for (const auto& network : state_->team->networks)
    if (buffers)
      for (const auto& [name, buffer] : held_tensors(*state_->team, *network->networks[state_->member], false))
        tensors.emplace_back(name, buffer);
  require_equal_hashes(state_->peers.all_gather(hashes_of(tensors)), tensors,
                       {.placement = state_->team->placement, .of_processes = of_processes, .step = optimizer.steps()});
}

}  // namespace lockstep::parallel
