// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {

using Clock = std::chrono::steady_clock;

/// A message did not get through. `peer`: the rank at its other end, or -1.
class TransportFailure : public std::runtime_error {
 public:
  TransportFailure(int peer, const std::string& what) : std::runtime_error(what), peer(peer) {}
  int peer;
};

/// Bytes to or from one rank: a flat, contiguous tensor of any dtype.
struct Message {
  int peer;
  at::Tensor tensor;
};

/// Messages on their way.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks until all have been sent and received. Throws TransportFailure when one failed or at the deadline.
  virtual void wait(Clock::time_point deadline) = 0;
  /// What this thread does with the tensors from now on comes after the messages. On a GPU that is an order of its
  /// current stream, nobody blocks, and it is false: wait() is still to be called. Else it is wait(), and true.
  virtual bool order(Clock::time_point deadline) {
    wait(deadline);
    return true;
  }
};

/// What a backend between processes has to do: carry messages. Every collective is made of rounds of messages
/// (algorithms.h), so all backends give the same bits and fail in the same way. `start` may be called by any thread.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Where the tensors of its messages live.
  virtual at::Device device() const { return at::kCPU; }

  /// Starts one round: all messages travel at once. Between two ranks, messages of one channel arrive in order.
  virtual std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                         uint32_t channel) = 0;

  /// The backend's own all-reduce, in its own order of additions. False: it has none for this dtype or operation.
  virtual bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) = 0;

  /// Collective over `members` alone.
  virtual std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) = 0;

  /// The rank that is to blame for a failure, as far as the ranks can find out from each other within `patience`.
  virtual int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept {
    (void)patience;
    return suspect;
  }

  /// Fails everything under way, here at once and at the peers as soon as they notice. Never blocks.
  virtual void close() noexcept = 0;
  /// Ends the connection where nothing is under way and nothing has failed. Blocks no longer than a second.
  virtual void leave() noexcept { close(); }
};

}  // namespace lockstep::comm
