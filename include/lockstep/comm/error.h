// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep::comm {

/// A peer's failure: it died, stalled past the timeout, left, or called something else. The operation has no result;
/// what stands in its output is undefined. The group is broken from here on: every later call throws too.
class CommError : public std::runtime_error {
 public:
  /// `rank`: the rank that failed, or -1 where nobody can tell. `seconds`: how long this rank had waited.
  CommError(int rank, std::string operation, double seconds, const std::string& what);

  int rank() const { return rank_; }
  const std::string& operation() const { return operation_; }
  double seconds() const { return seconds_; }

 private:
  int rank_;
  std::string operation_;
  double seconds_;
};

}  // namespace lockstep::comm
