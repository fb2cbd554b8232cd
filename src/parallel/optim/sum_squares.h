// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// The sum of squares of a flat tensor, in double, in an order that depends on its length alone.
double sum_squares(const at::Tensor& flat);

}  // namespace lockstep::parallel
