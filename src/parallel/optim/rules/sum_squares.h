// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::parallel {

/// The sum of squares of each of these flat tensors of one device, in double, in an order that depends on its length
/// alone. On a GPU there is one wait for all.
std::vector<double> sums_of_squares(const std::vector<at::Tensor>& flats);

}  // namespace lockstep::parallel
