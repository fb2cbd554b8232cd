// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::bench {

/// Seconds on this thread's own clock, which stands still while other programs have the core, where operations use one
/// thread; on the wall's where they use more.
double work_seconds();

/// GFLOP/s of libtorch's matrix product of 1024 x 1024 in float32: what this machine's arithmetic gives just now.
double sgemm_peak();

}  // namespace lockstep::bench
