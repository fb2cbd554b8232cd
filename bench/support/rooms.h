// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::bench {

/// The voxels of a room: a floor, four walls and a dozen boxes, as a scanner sees them, one voxel thick. About `voxels`
/// rows of (0, x, y, z), int32, sorted or in random order.
at::Tensor make_room(int64_t voxels, uint64_t seed, bool shuffled);

}  // namespace lockstep::bench
