// SPDX-License-Identifier: Apache-2.0
// A replica's handle on its optimiser.
#include "lockstep/parallel/optimizer.h"

#include "lockstep/base/error.h"
#include "parallel/optim/optimizer_state.h"

namespace lockstep::parallel {

double Optimizer::lr() const {
  require(!rules_.empty(), "lr", "the optimiser is empty, expected one made by Replica::optimizer");
  return learning_rate(rules_[0]);
}

void Optimizer::set_lr(double lr) {
  for (Rule& rule : rules_) set_learning_rate(rule, lr);
}

void Optimizer::schedule(std::function<double(int64_t)> factor) {
  schedule_ = std::move(factor);
}

int64_t Optimizer::steps() const {
  return state_ ? state_->steps() : 0;
}
double Optimizer::loss_scale() const {
  return state_ ? state_->loss_scale() : 1;
}

std::map<std::string, at::Tensor> Optimizer::state_dict() const {
  require(state_ != nullptr, "state_dict", "the optimiser is empty, expected one made by Replica::optimizer");
  return state_->state_dict();
}

void Optimizer::load_state_dict(const std::map<std::string, at::Tensor>& state) const {
  require(state_ != nullptr, "load_state_dict", "the optimiser is empty, expected one made by Replica::optimizer");
  state_->load_state_dict(state);
}

}  // namespace lockstep::parallel
