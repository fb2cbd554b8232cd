// SPDX-License-Identifier: Apache-2.0
// A clock that jumps from event to event, and cores that threads share in its time.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace lockstep::parallel {

/// Events in the order of their times; of equal times in the order in which they were asked for.
class VirtualTime {
 public:
  using Event = std::function<void()>;

  double now() const { return now_; }
  void at(double when, Event event) { events_.push({when, number_++, std::move(event)}); }
  /// Until nothing is left to happen.
  void run();

 private:
  struct Entry {
    double when;
    uint64_t number;
    Event event;
    bool operator<(const Entry& other) const {  // the queue's top is the largest
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  std::priority_queue<Entry> events_;
  double now_ = 0;
  uint64_t number_ = 0;
};

/// What a thread does with a core. Memory: sums, updates and messages.
enum class CoreUse : uint8_t { pass, memory };

/// The cores of one process. Threads beyond their number share them alike, and threads that compute at once slow each
/// other.
class VirtualCores {
 public:
  /// How much slower work of a kind is where so many threads compute.
  using Slower = std::function<double(CoreUse use, double threads)>;

  VirtualCores(VirtualTime& time, double cores, Slower slower)
      : time_(time), cores_(cores), slower_(std::move(slower)) {}

  /// So many seconds of work, by `threads` threads at once; then `done`.
  void run(double seconds, CoreUse use, int64_t threads, VirtualTime::Event done);

 private:
  struct Task {
    double left;  // seconds, undisturbed
    CoreUse use;
    int64_t threads;
    VirtualTime::Event done;
  };
  double rate(const Task& task) const;
  void settle();
  void plan_next();

  VirtualTime& time_;
  const double cores_;
  const Slower slower_;
  std::vector<Task> tasks_;
  double threads_ = 0;
  double settled_ = 0;    // the time up to which work is accounted for
  uint64_t version_ = 0;  // of the plan: an event of an older one is void
};

}  // namespace lockstep::parallel
