// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// What stands for "for ever": clocks end.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

enum class Kind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  gather,
  scatter,
  broadcast,
  all_to_all,
  reduce_nodes,
  send,
  recv,
  barrier
};

const char* name_of(Kind kind);

/// One operation as a rank posted it. Group has checked the arguments and made the tensors contiguous; an in-place
/// operation has the same tensor as input and output.
struct Call {
  Kind kind = Kind::barrier;
  TensorList inputs;
  TensorList outputs;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::canonical;
  int peer = -1;  // the root, the receiver or the sender
  int tag = 0;
  // What ranks contribute where they are only a part of the logical replicas: hierarchical groups alone.
  // reduce_nodes (threads): rank t is replica block.begin + t; the peer's outputs receive the block's maximal nodes.
  // all_reduce (processes): the inputs are the nodes of this process's block, outputs[0] the result.
  Placement placement;
  Interval block;
  std::vector<int64_t> input_counts;   // all_to_all: elements for each rank
  std::vector<int64_t> output_counts;  // all_to_all: elements from each rank
  std::chrono::milliseconds timeout{0};
};

/// "all_reduce(sum, float32[1024])": what a mismatch or a failure shows.
std::string describe(const Call& call);

/// What all ranks of a collective must agree on, put in words: equal texts, matching calls.
std::string signature(const Call& call);

/// A group's member at work. Implementations: local.cpp (threads), transport_backend.cpp (anything that can send and
/// receive: Gloo, NCCL, MPI), hierarchical.cpp.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;
  /// Where tensors that lockstep itself sends live: the GPU for a backend that knows no other.
  virtual at::Device device() const { return at::kCPU; }
  virtual std::chrono::milliseconds timeout() const = 0;
  virtual bool may_lose_members() const { return false; }
  /// What this member has sent to others through a transport.
  virtual int64_t bytes_sent() const { return 0; }
  /// Starts the operation and returns without waiting for other ranks.
  virtual std::shared_ptr<WorkState> post(Call call) = 0;
  /// Collective over `members` alone (ranks here, in the order of their new ranks; this rank is one of them).
  /// `number` counts the splits of this group: it is the same on all members and tells groups apart.
  virtual std::shared_ptr<Backend> subgroup(const std::vector<int>& members, int number) = 0;
  virtual void abort(const std::string& reason) noexcept = 0;
  /// How often this member was split; counted here so that copies of a Group agree.
  int splits = 0;

  /// Aborts this group and those that it was split into.
  void abort_all(const std::string& reason) noexcept;
  void add_split(const std::shared_ptr<Backend>& group);

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<Backend>> split_off_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string aborted_ LOCKSTEP_GUARDED_BY(mutex_);  // why, once it is
};

/// The first error's message of a group that is broken already.
std::string broken_message(const std::string& operation, const std::string& reason);

/// Seconds since `start`.
double seconds_since(std::chrono::steady_clock::time_point start);

}  // namespace lockstep::comm
