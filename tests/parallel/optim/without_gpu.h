// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::parallel::test {

/// Whether the CPU passes for a GPU, whose rules are computed in batches.
extern bool is_gpu;
/// How many kernels were launched there.
extern int64_t launches;

}  // namespace lockstep::parallel::test
