// SPDX-License-Identifier: Apache-2.0
// The threads of a process that run its replicas: how they meet, and which of them may compute.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/timeline.h"
#include "parallel/crew/permits.h"
#include "parallel/crew/sleeper.h"

namespace lockstep::parallel {

/// Work for all members of a crew that has met: run(0) .. run(count - 1), in any order, on as many threads as may
/// compute at once; then what `next` returns, if it is set.
struct CrewWork {
  int64_t count = 0;
  std::function<void(int64_t)> run;
  std::function<CrewWork()> next;
};

/// Thrown in the other members once one has failed: it unwinds their stacks, and Team::run reports the cause.
class CrewStopped : public std::runtime_error {
 public:
  CrewStopped() : std::runtime_error("another replica of this process has failed") {}
};

/// Gradients of a layer's weights, which any thread may compute, with a permit of any part.
using LateWork = std::function<void()>;

/// The threads of one process that run its replicas, one each. They meet: whoever comes waits for the others, the last
/// one decides what is to be done, and those who waited do it together.
///
/// With more members than permits a member computes only while it holds a permit. One that waits hands it to a member
/// that has none yet, and sleeps until it is handed one again; the last ones to come keep theirs, do the work that is
/// shared and go on at once. So one core runs any number of replicas in turn, no more activations live than there are
/// permits, and a step wakes each sleeping thread once.
///
/// Where a network is divided into parts, each part has permits of its own. A member in a pass holds one of the part
/// that it computes, and exchanges it at the border; one in no pass computes with any. A part has no more members in
/// flight than there are permits from it on, and within that limit who comes is served first: that is the schedule
/// 1F1B. A member in flight that waits for the others, in a batch norm say, does not count. So where nobody could go
/// on, somebody may come. Gradients of weights may be left for when a device would be idle; who has ended its pass
/// and waits with a permit helps with those of others.
class Crew {
 public:
  /// Every permit is a thread that may compute.
  Crew(int64_t members, int64_t permits) : Crew(members, std::vector<int64_t>{permits}) {}
  /// Permits of each part, and of parts ahead of them and behind them in other processes.
  Crew(int64_t members, const std::vector<int64_t>& permits, int64_t ahead = 0, int64_t behind = 0);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int64_t members() const { return members_; }

  /// A member begins to compute, and has done all it had to do. Throws CrewStopped; leave() throws Error where others
  /// still wait for this member to meet them.
  void enter(int64_t member);
  void leave(int64_t member);

  /// A member stays on the core that it computes on, until it may roam again. Both from its own thread.
  void stay_here(int64_t member) noexcept { sleepers_[member]->stay_here(); }
  void roam(int64_t member) noexcept { sleepers_[member]->roam(); }

  /// A member in a pass comes to a part, forwards or backwards. It returns with one of that part's permits in place of
  /// the one that it had. What it computed in the parts behind a border that it comes back over is no longer kept.
  void come_to(int64_t member, int64_t part);
  void go_back_to(int64_t member, int64_t part);
  /// Where the parts are processes: a member gives its permit up while it waits for another part, and returns with one
  /// when what it waited for has come.
  void go_outside(int64_t member);
  void come_inside(int64_t member, Pass pass);
  /// A member leaves gradients of a part's weights for later, layer by layer.
  void leave_late(int64_t member, int64_t part, std::deque<LateWork> layers);
  /// When it has gone back: computes them, each with a permit that no other wants. Returns when those are computed,
  /// too, that others have taken.
  void compute_late(int64_t member);
  /// Any number of members may be in flight, as all are needed at once in some layer of another process.
  void let_all_come();
  /// Nothing of its pass is kept any longer. It goes on with the permit that it has.
  void end_pass(int64_t member);

  /// Collective. `on_last` runs once, on the thread that comes last, while all others wait; its work is shared. Returns
  /// when the work is done. Every member must come for the same purpose `what`, or all get an Error that names both.
  /// In timelines the work counts as `work`, the rest as waiting.
  void meet(int64_t member, const char* what, const std::function<CrewWork()>& on_last, Phase work = Phase::exchange);

  /// A meeting in two halves, without work for all. arrive() says that this member has come, and goes on: `on_last`
  /// runs once, on the thread that comes last. await() returns when it has been run for the arrival with this number.
  /// Every member arrives the same number of times between two meetings; not every one need wait.
  uint64_t arrive(int64_t member, const char* what, const std::function<void()>& on_last);
  void await(int64_t member, uint64_t arrival, const char* what);

  /// Makes everyone who waits, now or later, throw CrewStopped. The first call's error is kept.
  void stop(int64_t member, std::exception_ptr error) noexcept;

  /// The first failure: its member, or -1.
  int64_t failed_member() const {
    const Lock lock(mutex_);
    return failed_member_;
  }
  std::exception_ptr error() const {
    const Lock lock(mutex_);
    return error_;
  }

 private:
  struct Underway {
    CrewWork work;
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };

  using Clock = std::chrono::steady_clock;

  void sleep(int64_t member);
  void hand_over(int64_t member, int64_t next);
  void exchange_permit(int64_t member, int64_t part, Way way);
  void pause(int64_t member) LOCKSTEP_REQUIRES(mutex_);
  void leave_core() LOCKSTEP_REQUIRES(mutex_);
  void keep_core() LOCKSTEP_REQUIRES(mutex_);
  void take_cores(const std::vector<int64_t>& members) LOCKSTEP_REQUIRES(mutex_);
  std::vector<int64_t> take_free() LOCKSTEP_REQUIRES(mutex_);
  bool begin_to_wait(int64_t member, std::vector<int64_t>& chosen) LOCKSTEP_REQUIRES(mutex_);
  void wake(const std::vector<int64_t>& members);
  void publish(CrewWork work);
  void finish();
  void help(Underway& underway, int64_t member, Phase work);
  int64_t late_part(int64_t member) const LOCKSTEP_REQUIRES(mutex_);
  LateWork take_late(int64_t member) LOCKSTEP_REQUIRES(mutex_);
  int64_t begin_to_help(int64_t helper, LateWork& layer) LOCKSTEP_REQUIRES(mutex_);
  void help_late(int64_t helper, int64_t member, const LateWork& layer);
  void mark_part(int64_t part) const;
  uint32_t wait_for_change(uint32_t seen) const;
  void check_running() const;
  [[noreturn]] void refuse_to_wait(const char* what) const LOCKSTEP_REQUIRES(mutex_);
  static void require_same_call(bool same, const char* what, const char* other);

  const int64_t members_;
  const bool is_divided_;

  mutable Mutex mutex_;
  int64_t arrived_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t left_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t left_after_ LOCKSTEP_GUARDED_BY(mutex_) = std::numeric_limits<uint64_t>::max();  // arrivals
  const char* purpose_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  uint64_t met_after_ LOCKSTEP_GUARDED_BY(mutex_) =
      0;  // arrivals: the fewest of those who came to the meeting under way
  uint64_t meetings_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // that have ended
  std::vector<uint64_t> arrivals_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<uint64_t> awaits_
      LOCKSTEP_GUARDED_BY(mutex_);  // how many arrivals of everyone a member waits for; 0 where it doesn't
  const char* awaited_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  uint64_t complete_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // arrivals of everyone
  std::shared_ptr<Underway> underway_ LOCKSTEP_GUARDED_BY(mutex_);
  std::atomic<uint32_t> change_{0};  // bumped whenever a waiting member has something to look at

  Permits permits_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::vector<std::deque<LateWork>>> late_ LOCKSTEP_GUARDED_BY(mutex_);  // [member][part]
  std::vector<int64_t> helped_ LOCKSTEP_GUARDED_BY(mutex_);  // layers of a member that others compute now
  std::vector<int> idle_cores_ LOCKSTEP_GUARDED_BY(mutex_);  // that members left when they went to sleep
  std::vector<Clock::time_point> began_;                     // to compute: each is its member's
  std::vector<std::unique_ptr<Sleeper>> sleepers_;           // what a member sleeps on until it is handed one

  std::atomic<bool> stopped_{false};
  int64_t failed_member_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::parallel
