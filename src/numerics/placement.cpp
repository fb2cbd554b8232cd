// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/placement.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

Placement::Placement(const std::vector<int64_t>& counts) {
  for (int64_t count : counts) {
    require(count >= 0, "Placement", "a process has ", count, " replicas, expected 0 or more");
    begins_.push_back(begins_.back() + count);
  }
}

Placement Placement::even(int64_t replicas, int64_t processes) {
  require(replicas >= 0 && processes >= 1, "Placement", "got ", replicas, " replicas on ", processes,
          " processes, expected 0 or more on at least 1");
  std::vector<int64_t> counts(processes, replicas / processes);
  for (int64_t p = 0; p < replicas % processes; ++p) ++counts[p];
  return Placement(counts);
}

int64_t Placement::process_of(int64_t replica) const {
  require(0 <= replica && replica < replicas(), "Placement", "replica ", replica, " of ", replicas());
  return std::upper_bound(begins_.begin(), begins_.end(), replica) - begins_.begin() - 1;
}

}  // namespace lockstep
