// SPDX-License-Identifier: Apache-2.0
// The norms that a step's rules are given: a tensor's pieces may lie in several processes.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "parallel/optim/optimizer_state.h"
#include "parallel/optim/rules/sum_squares.h"

namespace lockstep::parallel {

bool OptimizerState::has_direction_of_its_own(const Piece& piece) const {
  return has_direction(rule(piece)) && used(piece) && keeps(piece);
}

// Where rules make them of gradients.
void OptimizerState::measure_directions(Interval pieces) {
  std::vector<at::Tensor> directions;
  std::vector<int64_t> measured;
  for (int64_t number = pieces.begin; number < pieces.end; ++number) {
    if (!has_direction_of_its_own(exchange_->plan().pieces[number])) continue;
    directions.push_back(slices_[number].gradient);
    measured.push_back(number);
  }
  const std::vector<double> sums = sums_of_squares(directions);
  for (size_t k = 0; k < measured.size(); ++k) norms_[measured[k]].direction = sums[k];
}

TensorNorms OptimizerState::norms_of(int64_t parameter) const {
  TensorNorms sum;
  for (const int64_t piece : exchange_->plan().pieces_of[parameter]) {
    sum.weight += norms_[piece].weight;
    sum.direction += norms_[piece].direction;
  }
  return sum;
}

// Directions (LAMB's) follow from the state, which only the process that keeps it has.
void OptimizerState::share_norms() {
  const auto count = static_cast<int64_t>(norms_.size());
  const auto directions = at::zeros({count}, at::kDouble);
  auto* direction = directions.mutable_data_ptr<double>();
  for (int64_t number = 0; number < count; ++number)
    if (keeps(exchange_->plan().pieces[number])) direction[number] = norms_[number].direction;
  team_->gradients.all_reduce(directions).wait();  // each is one process's, and zero is nothing
  for (int64_t number = 0; number < count; ++number) norms_[number].direction = direction[number];
}

}  // namespace lockstep::parallel
