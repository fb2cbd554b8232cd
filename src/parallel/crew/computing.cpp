// SPDX-License-Identifier: Apache-2.0
// A crew's members as they get permits to compute and hand them on.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/context/timeline_scope.h"
#include "parallel/crew/crew.h"

namespace lockstep::parallel {

void Crew::sleep(int64_t member) {
  sleepers_[member]->sleep();
  check_running();
  began_[member] = Clock::now();
}

void Crew::hand_over(int64_t member, int64_t next) {
  sleepers_[next]->wake();
  sleep(member);
}

// The calling thread is about to sleep.
void Crew::leave_core() {
  keep_core();
  idle_cores_.push_back(sched_getcpu());
}

// It goes on.
void Crew::keep_core() {
  std::erase(idle_cores_, sched_getcpu());
}

// Who is woken begins on a core that is idle. The system would often wake it on the core of whoever wakes it, and takes
// milliseconds to find that another one has nothing to do.
void Crew::take_cores(const std::vector<int64_t>& members) {
  for (const int64_t member : members) {
    if (idle_cores_.empty()) return;
    sleepers_[member]->begin_on(idle_cores_.back());
    idle_cores_.pop_back();
  }
}

std::vector<int64_t> Crew::take_free() {
  std::vector<int64_t> chosen = permits_.take_free();
  take_cores(chosen);
  return chosen;
}

// A member in flight that waits makes room for others: true where it does. Of these, `chosen` are to be woken.
bool Crew::begin_to_wait(int64_t member, std::vector<int64_t>& chosen) {
  if (!permits_.begin_to_wait(member)) return false;
  chosen = take_free();
  ++change_;
  return true;
}

void Crew::wake(const std::vector<int64_t>& members) {
  change_.notify_all();
  for (const int64_t member : members) sleepers_[member]->wake();
}

void Crew::enter(int64_t member) {
  sleepers_[member]->enroll();
  {
    const Lock lock(mutex_);
    check_running();
    if (permits_.enter(member)) return keep_core();
    ++change_;
  }
  change_.notify_all();
  const PhaseScope waiting(Phase::wait, "a permit");
  sleep(member);
}

void Crew::leave(int64_t member) {
  Lock lock(mutex_);
  if (stopped_) return;  // those who wanted a permit may have gone
  const int64_t next = permits_.leave(member);
  leave_core();
  if (next != Permits::kNobody) take_cores({next});
  ++left_;
  left_after_ = std::min(left_after_, arrivals_[member]);
  const std::vector<int64_t> others = take_free();
  const bool look_again = is_divided_ || !others.empty();
  if (look_again) ++change_;
  lock.unlock();
  if (next != Permits::kNobody) sleepers_[next]->wake();
  if (look_again) wake(others);
  lock.lock();
  if (stopped_) return;
  if (arrived_ > 0) refuse_to_wait(purpose_);
  if (std::ranges::max(awaits_) > left_after_) refuse_to_wait(awaited_);
}

void Crew::come_to(int64_t member, int64_t part) {
  exchange_permit(member, part, Way::forwards);
}

void Crew::go_back_to(int64_t member, int64_t part) {
  exchange_permit(member, part, Way::backwards);
}

void Crew::leave_late(int64_t member, int64_t part, std::deque<LateWork> layers) {
  if (layers.empty()) return;
  {
    const Lock lock(mutex_);
    late_[member][part] = std::move(layers);
    ++change_;
  }
  change_.notify_all();
}

// The last one that has layers left; kNobody where none has.
int64_t Crew::late_part(int64_t member) const {
  int64_t part = std::ssize(late_[member]) - 1;
  while (part >= 0 && late_[member][part].empty()) --part;
  return part >= 0 ? part : Permits::kNobody;
}

LateWork Crew::take_late(int64_t member) {
  const int64_t part = late_part(member);
  if (part == Permits::kNobody) return {};
  LateWork next = std::move(late_[member][part].front());
  late_[member][part].pop_front();
  return next;
}

void Crew::compute_late(int64_t member) {
  for (;;) {
    int64_t part;
    {
      const Lock lock(mutex_);
      part = late_part(member);
    }
    if (part == Permits::kNobody) break;
    exchange_permit(member, part, Way::late);
    LateWork layer;
    {
      const Lock lock(mutex_);
      layer = take_late(member);
    }
    if (layer) layer();
  }
  for (;;) {
    uint32_t seen;
    {
      const Lock lock(mutex_);
      check_running();
      if (helped_[member] == 0) return;
      seen = change_;
    }
    wait_for_change(seen);
  }
}

// Whose layer it is; kNobody where there is none, or where the helper waits within a pass: that may be a backward one,
// and autograd's passes would nest.
int64_t Crew::begin_to_help(int64_t helper, LateWork& layer) {
  if (permits_.is_in_flight(helper)) return Permits::kNobody;
  for (int64_t member = 0; member < members_; ++member)
    if (layer = take_late(member); layer) {
      ++helped_[member];
      return member;
    }
  return Permits::kNobody;
}

// An error in it is its member's.
void Crew::help_late(int64_t helper, int64_t member, const LateWork& layer) {
  int64_t part;
  {
    const Lock lock(mutex_);
    part = permits_.part_of(helper);
  }
  try {
    const PhaseScope working(Phase::backward);
    mark_part(part);
    layer();
    mark_part(-1);
  } catch (...) {
    stop(member, std::current_exception());
  }
  {
    const Lock lock(mutex_);
    --helped_[member];
    ++change_;
  }
  change_.notify_all();
}

// In a trace, what the calling thread computes from now on is drawn on a device of this part; -1: of any.
void Crew::mark_part(int64_t part) const {
  if (Timeline* const timeline = Context::current().timeline; timeline != nullptr && is_divided_)
    timeline->mark_part(part);
}

void Crew::exchange_permit(int64_t member, int64_t part, Way way) {
  {
    const PhaseScope waiting(Phase::wait, "a part of the network");
    std::vector<int64_t> chosen;
    bool sleeps;
    {
      const Lock lock(mutex_);
      check_running();
      permits_.exchange(member, part, way);
      chosen = permits_.take_free();
      std::erase(chosen, member);
      sleeps = permits_.wants(member);
      sleeps ? leave_core() : keep_core();
      take_cores(chosen);
      ++change_;
    }
    wake(chosen);
    if (sleeps) sleep(member);
  }
  {
    const Lock lock(mutex_);
    part = permits_.part_of(member);
  }
  mark_part(part);
}

void Crew::go_outside(int64_t member) {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    check_running();
    pause(member);
    permits_.go_outside(member);
    leave_core();
    chosen = take_free();
    ++change_;
  }
  wake(chosen);
}

void Crew::come_inside(int64_t member, Pass pass) {
  std::vector<int64_t> chosen;
  bool sleeps;
  {
    const Lock lock(mutex_);
    check_running();
    permits_.come_inside(member, pass);
    chosen = permits_.take_free();
    std::erase(chosen, member);
    sleeps = permits_.wants(member);
    if (!sleeps) keep_core();
    take_cores(chosen);
    ++change_;
  }
  wake(chosen);
  if (sleeps) return sleep(member);
  began_[member] = Clock::now();
}

void Crew::let_all_come() {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    permits_.let_all_come();
    chosen = take_free();
    ++change_;
  }
  wake(chosen);
}

void Crew::end_pass(int64_t member) {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    check_running();
    permits_.end_pass(member);
    chosen = take_free();
    ++change_;
  }
  mark_part(-1);
  wake(chosen);
}

}  // namespace lockstep::parallel
