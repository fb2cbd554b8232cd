// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {

/// `reduce` (numerics/reduce.h) where the data is: on the CPU on the calling thread, on a GPU enqueued on that GPU's
/// current stream, up to 64 sources and 64 destinations.
void reduce_on(at::Device device, const TreeProgram& program, ReduceOp op, at::ScalarType dtype,
               std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, int64_t count,
               int64_t divisor = 1);

}  // namespace lockstep::comm
