// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/sparse/detail/row_map.h"

namespace lockstep::sparse::cuda {

/// The number of entries of each row, [out_size], on a device; copied there once, and not to be written to.
at::Tensor row_lengths(const RowMap& map, at::Device device, at::ScalarType type);

}  // namespace lockstep::sparse::cuda
