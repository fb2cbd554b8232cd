// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// A contiguous run of logical replicas, [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// Where R logical replicas run: process p runs the next `counts[p]` of them. Any contiguous split is legal, empty
/// processes too.
class Placement {
 public:
  Placement() = default;
  explicit Placement(const std::vector<int64_t>& counts);

  /// Blocks of `replicas` over `processes` whose sizes differ by at most one (the first ones are larger).
  static Placement even(int64_t replicas, int64_t processes);

  int64_t replicas() const { return begins_.back(); }
  int64_t processes() const { return static_cast<int64_t>(begins_.size()) - 1; }
  Interval block(int64_t process) const { return {begins_[process], begins_[process + 1]}; }
  /// The process that runs a replica.
  int64_t process_of(int64_t replica) const;
  bool operator==(const Placement&) const = default;

 private:
  std::vector<int64_t> begins_{0};
};

}  // namespace lockstep
