// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::train {

/// The sum of the cross entropies of logits [N, classes, ...] at targets [N, ...], but for those that are
/// data::kIgnore. Row by row, whatever lies behind the classes: of an image CUDA would add up the losses in any order.
at::Tensor sum_of_losses(const at::Tensor& logits, const at::Tensor& targets, double smoothing);

}  // namespace lockstep::train
