// SPDX-License-Identifier: Apache-2.0
// Checks that processes hold the same values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/numerics/placement.h"

namespace lockstep::parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// One 64-bit hash a tensor, over its bytes in row-major order: int64 [n].
at::Tensor hashes_of(const NamedTensors& tensors);

/// Of one tensor.
int64_t hash_of(const at::Tensor& tensor);

/// Whose hashes are compared, and when.
struct Compared {
  const Placement& placement;
  size_t of_processes;  // the first so many tensors are a process's; the others a replica's
  int64_t step;
};

/// Throws Error when rows of `hashes` [replicas, n] differ: names the first tensor that does, the step, and who has
/// other bits than most, where more than half have the same.
void require_equal_hashes(const at::Tensor& hashes, const NamedTensors& tensors, const Compared& compared);

}  // namespace lockstep::parallel
