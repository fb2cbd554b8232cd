// SPDX-License-Identifier: Apache-2.0
// Where a network is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// The first stage of each part, where the stages' costs are divided over the parts as evenly as can be: the part with
/// the largest cost a device has the least that any cut gives. `devices`: of each part. Parts are never empty: there
/// are at least as many stages.
std::vector<size_t> cut_evenly(std::span<const double> costs, std::span<const int64_t> devices);

/// "conv1 to pool2 (61 %) | conv3 to fc (39 %)", of stages with these names.
std::string describe_cut(std::span<const std::string> names, std::span<const double> costs,
                         std::span<const size_t> first);

}  // namespace lockstep::parallel
