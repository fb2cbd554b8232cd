// SPDX-License-Identifier: Apache-2.0
// An optimiser where processes hold parts of the network: each has its own parameters, and all have one norm.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "parallel/optim/optimizer_state.h"
#include "parallel/team/share.h"

namespace lockstep::parallel {
namespace {

int64_t place_in(const SharedNetwork& network, const std::string& name) {
  return std::ranges::find(network.names, name) - network.names.begin();
}

}  // namespace

// In the first step, when all gradients are there and none has left: from now on this is an optimiser of those
// parameters that this process holds.
void OptimizerState::keep_own() {
  std::vector<int64_t> order = first_order();
  const SharedNetwork& network = *team_->networks[0];
  const ProcessCut& cut = *team_->process_pipeline->cut();
  keep_part(network, cut, team_->part.part);
  std::vector<OptimizedParameter> parameters;
  std::vector<std::array<at::Tensor, 3>> state;
  std::vector<int64_t> kept, place(parameters_.size(), -1);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    OptimizedParameter& parameter = parameters_[p];
    parameter.owner = cut.parameters[place_in(network, parameter.name)];
    if (!ProcessCut::holds(team_->part.part, parameter.owner)) {
      others_.push_back(parameter.name);
      continue;
    }
    place[p] = static_cast<int64_t>(parameters.size());
    kept.push_back(static_cast<int64_t>(p));
    parameters.push_back(std::move(parameter));
    state.push_back(std::move(state_[p]));
  }
  LOCKSTEP_ASSERT(!parameters.empty());  // each part has some to train
  parameters_ = std::move(parameters);
  state_ = std::move(state);
  lay_out();
  take_loaded();
  used_.assign(parameters_.size(), 0);
  updates_.assign(parameters_.size(), {});
  std::vector<int64_t> own;
  for (const int64_t p : order)
    if (place[p] >= 0) own.push_back(place[p]);
  for (int64_t p = static_cast<int64_t>(parameters_.size()) - 1; p >= 0; --p)
    if (std::ranges::count(own, p) == 0) own.push_back(p);  // whose gradient has not come
  is_settled_ = true;
  plan(own, exchange_->arrivals().of(kept));
  exchange_->post_all();
}

// What no stage was seen to use, all parts hold, and it stays the same in all: its gradient must come in all or none.
void OptimizerState::check_common() const {
  std::vector<int64_t> common;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (parameters_[p].owner == ProcessCut::kAll) common.push_back(static_cast<int64_t>(p));
  if (common.empty()) return;
  const auto users = at::zeros({static_cast<int64_t>(common.size())}, at::kLong);
  auto* count = users.mutable_data_ptr<int64_t>();
  for (size_t c = 0; c < common.size(); ++c) count[c] = used_[common[c]];
  team_->line.all_reduce(users).wait();
  for (size_t c = 0; c < common.size(); ++c)
    require(count[c] == 0 || count[c] == team_->part.parts, "step", "the parameter ", parameters_[common[c]].name,
            " has a gradient in ", count[c], " of ", team_->part.parts,
            " parts of the network, and was used by no stage in eval mode, which is where the network was looked at, ",
            "expected stages that use the same parameters in both modes: use --split data");
}

// Of the gradient, in the order of the parameters, in whatever part of the network they lie.
double OptimizerState::sum_squares_of_all() const {
  const auto all = at::zeros({numbers_}, at::kDouble);
  auto* squares = all.mutable_data_ptr<double>();
  const ProcessPipeline* const pipeline = team_->process_pipeline.get();
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (used_[p] && (pipeline == nullptr || team_->saves(parameters_[p].owner)))
      squares[parameters_[p].number] = norms_of(static_cast<int64_t>(p)).direction;
  if (pipeline != nullptr) team_->line.all_reduce(all).wait();  // each is one part's, and zero is nothing
  double sum = 0;
  for (int64_t number = 0; number < numbers_; ++number) sum += squares[number];
  return sum;
}

}  // namespace lockstep::parallel
