// SPDX-License-Identifier: Apache-2.0
// Checks that processes hold the same values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// One 64-bit hash a tensor, over its bytes in row-major order: int64 [n].
at::Tensor hashes_of(const NamedTensors& tensors);

/// Throws Error when a row of `hashes` [replicas, n] differs from replica 0's: names the first such tensor, the replica
/// and the step.
void require_equal_hashes(const at::Tensor& hashes, const NamedTensors& tensors, int64_t step);

}  // namespace lockstep::parallel
