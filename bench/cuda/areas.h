// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace lockstep::bench {

/// Sparse convolutions of rooms of so many voxels, and the tables that they need.
nlohmann::json measure_convolutions(const std::vector<int64_t>& voxels, int rounds);

/// What is not a convolution: batch norms, sums in the canonical tree, random numbers.
nlohmann::json measure_batch_norms(int rounds);
nlohmann::json measure_reductions(int rounds);
nlohmann::json measure_random_numbers(int rounds);

}  // namespace lockstep::bench
