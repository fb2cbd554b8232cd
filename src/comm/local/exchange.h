// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "comm/backend.h"
#include "comm/device.h"
#include "comm/local/plan.h"
#include "lockstep/base/detail/guarded.h"

namespace lockstep::comm::local {

using Clock = std::chrono::steady_clock;

/// Why an operation failed, kept so that every rank can throw it.
struct Failure {
  int rank;
  std::string reason;
};

/// How long the threads of a group stay awake while they wait for each other. They yield, so that ranks may share a
/// core; but where other programs compute, a yield takes one's whole time slice, and a sleeper is sooner back in its
/// core.
class SpinPolicy {
 public:
  void yield();
  /// Until when to stay awake that begins to wait now.
  Clock::time_point awake_until() const;

 private:
  std::atomic<Clock::time_point> crowded_until_{};
};

/// One operation that several threads take part in. It gathers their calls; the last one to come turns it into jobs,
/// cut into slices; whoever waits takes slices until none is left, those of its own part first. Nobody needs to wait
/// for the work to be done, as long as one thread does.
class Exchange {
 public:
  /// `ranks`: who takes part, in the order of their slots.
  Exchange(std::vector<int> ranks, SpinPolicy& spin_policy)
      : ranks_(std::move(ranks)),
        spin_policy_(spin_policy),
        calls_(ranks_.size()),
        orders_(ranks_.size()),
        arrived_(ranks_.size(), false) {}

  /// Adds the rank's call; true for the last one. Guarded by the hub's mutex.
  bool arrive(int rank, Call call, StreamOrder order);
  /// Makes jobs of the calls, and finishes small ones at once. Called once, by the last to arrive, without a lock.
  void start();

  /// Fails it unless all have arrived: then it is certain to end well. Guarded by the hub's mutex.
  void fail(Failure failure);

  bool has_arrived(int rank) const;
  /// The first rank that is not there yet, or -1.
  int missing() const;

  bool ended() const { return state_.load(std::memory_order_acquire) >= State::done; }
  /// The failure, once it has ended badly.
  const std::optional<Failure>& failure() const { return failure_; }

  /// Drops the rank's tensors once all is done, so that the thread that brought them also frees them, not whichever
  /// comes last.
  void release(int rank) noexcept;

  /// Takes part in the work, as `rank`, until the operation has ended, or `until` has come.
  bool help_until(int rank, Clock::time_point until);

 private:
  enum class State : uint8_t { gathering, running, done, failed };
  struct Slice {
    int32_t job;
    int64_t begin;
    int64_t count;
    int device;  // -1: the CPU
  };

  // The slices that one participant takes before it helps with another's: in the next operation on the same tensors it
  // finds them in the cache of its own core.
  struct Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  size_t slot_of(int rank) const { return std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin(); }
  void cut();
  void deal();
  bool run_slices(size_t slot);
  void run(const Slice& slice) const;
  void run_on_gpu(const Slice& slice, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations) const;
  void enter(State state);
  bool sleep_while(State state, Clock::time_point until);

  const std::vector<int> ranks_;
  SpinPolicy& spin_policy_;
  std::vector<Call> calls_;
  std::vector<StreamOrder> orders_;  // as the calls
  std::vector<bool> arrived_;
  size_t arrivals_ = 0;

  std::vector<Job> jobs_;
  std::vector<TreeProgram> programs_;
  std::vector<Slice> slices_;
  std::vector<Part> parts_;  // as the calls
  std::atomic<int64_t> remaining_{0};

  std::atomic<State> state_{State::gathering};
  std::optional<Failure> failure_;
  Mutex mutex_;  // of those who sleep; calls and arrivals are guarded by the hub's
  Condition changed_;
};

}  // namespace lockstep::comm::local
