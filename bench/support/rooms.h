// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "support/program.h"

namespace lockstep::bench {

/// The voxels of a room: a floor, four walls and a dozen boxes, as a scanner sees them, one voxel thick. About `voxels`
/// rows of (0, x, y, z), int32, sorted or in random order.
at::Tensor make_room(int64_t voxels, uint64_t seed, bool shuffled);

inline constexpr Option voxels_option{"--voxels", "N", "rooms of about so many; default 20000, 50000 and 100000"};

/// How many voxels the rooms are to have.
inline std::vector<int64_t> room_sizes(const Arguments& arguments) {
  return arguments.numbers(voxels_option.name, {20000, 50000, 100000});
}

}  // namespace lockstep::bench
