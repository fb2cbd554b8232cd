// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::cli {

/// Bytes of the tensors that are timed.
inline constexpr std::array<int64_t, 3> bandwidth_bytes{4 << 10, 1 << 20, 25 << 20};

/// Seconds that a canonical all_reduce of float32 takes here, the median of several calls, for each of bandwidth_bytes.
/// Collective; takes a second or two.
std::array<double, bandwidth_bytes.size()> measure_all_reduce(const comm::Group& group, c10::Device device);

}  // namespace lockstep::cli
