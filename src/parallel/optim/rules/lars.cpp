// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/rules/lars.h"

#include <cmath>

#include "lockstep/parallel/rules/sgd.h"
#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {

std::vector<RuleNumber> Lars::numbers() {
  return {{"lr", &lr}, {"momentum", &momentum}, {"weight_decay", &weight_decay}, {"trust", &trust}, {"eps", &eps}};
}

std::vector<std::string> Lars::state_names() const {
  if (momentum == 0) return {};
  return {"momentum_buffer"};
}

double Lars::ratio(const TensorUpdate& update, const TensorNorms& norms) const {
  const double weight = std::sqrt(norms.weight), gradient = std::sqrt(norms.direction) * update.gradient_scale;
  return weight > 0 && gradient > 0 ? trust * weight / (gradient + weight_decay * weight + eps) : 1;
}

// SGD, whose gradient and decay are scaled.
void Lars::apply(const TensorUpdate& update, const RuleSlice& slice) const {
  TensorUpdate scaled = update;
  scaled.gradient_scale *= update.ratio;
  Sgd{.lr = lr, .momentum = momentum, .weight_decay = update.is_matrix ? weight_decay * update.ratio : 0}.apply(scaled,
                                                                                                                slice);
}

}  // namespace lockstep::parallel
