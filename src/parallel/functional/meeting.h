// SPDX-License-Identifier: Apache-2.0
// Where the threads of one parallel_apply wait for each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/context/detail/peers.h"

namespace lockstep::parallel {

/// Thrown in the replicas that wait for one that has failed.
class MeetingStopped : public std::runtime_error {
 public:
  MeetingStopped() : std::runtime_error("another replica has failed") {}
};

/// Where the threads of one parallel_apply meet. Replica 0 does what is to be done for all, whoever comes last: then
/// what it builds has the same number in autograd's order every time, and gradients are added in the same order.
class Meeting {
 public:
  explicit Meeting(int64_t replicas) : replicas_(replicas), brought_(replicas), results_(replicas) {}

  int64_t replicas() const { return replicas_; }

  /// See Peers::meet. Throws Error where a replica that is waited for has left.
  at::Tensor meet(int64_t replica, std::vector<at::Tensor> mine, const Peers::Joint& joint);

  /// A replica has returned; one has failed.
  void leave(int64_t replica);
  void stop() noexcept;

 private:
  void stop_for_good(std::exception_ptr error) noexcept LOCKSTEP_REQUIRES(mutex_);
  void check_running() const LOCKSTEP_REQUIRES(mutex_);

  const int64_t replicas_;
  Mutex mutex_;
  Condition change_;
  std::vector<std::vector<at::Tensor>> brought_;  // while replica 0 works, the others wait and it alone looks at these
  std::vector<at::Tensor> results_;
  int64_t arrived_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t left_ LOCKSTEP_GUARDED_BY(mutex_) = -1;  // a replica that has returned
  uint64_t held_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // meetings that have ended
  bool stopped_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);  // none where a replica failed by itself
};

/// One replica of a parallel_apply.
class JointPeers : public Peers {
 public:
  JointPeers(Meeting& meeting, int64_t replica) : meeting_(meeting), replica_(replica) {}
  int64_t replica() const override { return replica_; }
  int64_t replicas() const override { return meeting_.replicas(); }
  at::Tensor all_gather(const at::Tensor& mine) override;
  bool shares_backward() const override { return true; }
  at::Tensor meet(const std::vector<at::Tensor>& mine, const Joint& joint) override {
    return meeting_.meet(replica_, mine, joint);
  }

 private:
  Meeting& meeting_;
  int64_t replica_;
};

}  // namespace lockstep::parallel
