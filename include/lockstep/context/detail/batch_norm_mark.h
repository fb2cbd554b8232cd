// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep {

/// What a batch norm computes in training: from x [N, C, ...], weight, bias, running mean and variance (each [C] or
/// undefined), momentum and epsilon; it moves the running statistics.
using BatchNormFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                                   const at::Tensor& bias, const at::Tensor& running_mean,
                                                   const at::Tensor& running_var, double momentum, double epsilon)>;

/// A layer of torch's is marked on one of its tensors, all that at::batch_norm sees of it: the running mean, or the
/// weight where it tracks nothing. In training at::batch_norm then calls the function. The mark belongs to the tensor:
/// Module::to(), load() and set_data() keep it; clone() and detach() make a tensor without one.
///
/// Not for a tensor that another thread computes with at the same time.
void mark_batch_norm(const at::Tensor& carrier, BatchNormFunction function);
/// Gives `to` the mark of `from`; nothing where that has none.
void copy_batch_norm_mark(const at::Tensor& from, const at::Tensor& to);
/// Null where there is no mark.
const BatchNormFunction* batch_norm_mark(const at::Tensor& carrier);

}  // namespace lockstep
