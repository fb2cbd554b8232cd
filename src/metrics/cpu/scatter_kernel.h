// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

// Shared by frechet.cpp and the three builds of scatter_kernel.cpp: plain data only, see
// base/detail/instruction_set.h. No sum is reordered, so every level gives the same bits.
namespace lockstep::metrics {

/// Adds rows^T rows of `count` rows [count, width] to the upper triangle [width * (width + 1) / 2].
LOCKSTEP_DECLARE_ISA(void add_scatter(const double* rows, int64_t count, int64_t width, double* triangle))

}  // namespace lockstep::metrics
