// SPDX-License-Identifier: Apache-2.0
#include "train/loss.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "lockstep/data/dataset.h"

namespace lockstep::train {

at::Tensor sum_of_losses(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  const at::Tensor rows = logits.dim() == 2 ? logits : logits.movedim(1, -1).reshape({-1, logits.size(1)});
  return at::cross_entropy_loss(rows.to(at::kFloat), targets.reshape(-1), {}, at::Reduction::Sum, data::kIgnore,
                                smoothing);
}

}  // namespace lockstep::train
