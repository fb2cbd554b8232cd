// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "lockstep/numerics/reduce.h"

namespace lockstep::comm::local {

/// Sources combined into destinations, element by element: every collective is a list of these. A copy has one source.
struct Job {
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  int64_t count = 0;  // elements
  at::ScalarType dtype = at::kByte;
  ReduceOp op = ReduceOp::sum;
  int64_t leaves = 0;  // of the tree, where the sources are only a block of it
  Interval block = {};
  std::vector<int> devices = {};  // the GPU of each destination; empty on the CPU
};

/// What is to be done once all ranks have posted: the calls of ranks 0 to size - 1 (of the sender and the receiver
/// for a message), as jobs. All elements of all jobs are independent of each other.
std::vector<Job> plan(const std::vector<Call>& calls);

/// Where two ranks' calls do not fit together: the number of the first call that differs, and a message that shows
/// both.
struct Mismatch {
  int rank;
  std::string message;
};
std::optional<Mismatch> find_mismatch(const std::vector<Call>& calls);

}  // namespace lockstep::comm::local
