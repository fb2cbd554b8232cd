// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/numerics/detail/portable.h"

namespace lockstep::sparse::cuda {

using portable::Compute;
using portable::divide_up;
using portable::join_as_tree;
using portable::multiply_add;
using portable::RowSlices;
using portable::sum_as_tree;
using portable::SumLines;

}  // namespace lockstep::sparse::cuda
