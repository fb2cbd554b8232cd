// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace lockstep::comm {

/// Finds out who is to blame for a failure. A dead connection only says that something is wrong: the peer at its other
/// end may itself have given up because of a third, in this group or in another one of the same job. So every rank that
/// fails reports in the store whom it suspects, and a group and those that are split off it share these reports. From
/// suspect to suspect they lead to a rank that has reported nothing: it died, stalled or did not come.
class FailureReports {
 public:
  /// Of a job's first group.
  FailureReports(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  /// Of the group that these ranks split off, with this rank among them. `name` tells it from all others.
  FailureReports of_subgroup(const std::vector<int>& ranks, const std::string& name) const;

  /// Reports a failure, and waits no longer than `patience` for the reports of others. The first verdict of a group
  /// stands for all its ranks. Returns `suspect` where the store does not answer in time.
  int find_culprit(int suspect, std::chrono::milliseconds patience) const noexcept;

 private:
  int ask(int suspect, std::chrono::milliseconds patience) const;
  int follow(int suspect, bool& ends) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string group_;
  int rank_;                  // in the group
  std::vector<int> members_;  // the job's rank of each of the group's
};

}  // namespace lockstep::comm
