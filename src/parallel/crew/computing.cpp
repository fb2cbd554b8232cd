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

// A member in flight that waits makes room for others: true where it does. Of these, `chosen` are to be woken.
bool Crew::begin_to_wait(int64_t member, std::vector<int64_t>& chosen) {
  if (!permits_.begin_to_wait(member)) return false;
  chosen = permits_.take_free();
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
    if (permits_.enter(member)) return;
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
  if (next != Permits::kNobody) sleepers_[next]->begin_here();
  ++left_;
  left_after_ = std::min(left_after_, arrivals_[member]);
  const std::vector<int64_t> others = permits_.take_free();
  const bool divided = permits_.parts() > 1 || !others.empty();
  if (divided) ++change_;
  lock.unlock();
  if (next != Permits::kNobody) sleepers_[next]->wake();
  if (divided) wake(others);
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

void Crew::come_late(int64_t member, int64_t part) {
  exchange_permit(member, part, Way::late);
}

void Crew::exchange_permit(int64_t member, int64_t part, Way way) {
  std::vector<int64_t> chosen;
  bool sleeps;
  {
    const Lock lock(mutex_);
    check_running();
    const int64_t left = permits_.part_of(member);
    permits_.exchange(member, part, way);
    chosen = permits_.take_free();
    sleeps = permits_.wants(member);
    // This core is about to be free for whoever takes the permit that was left.
    if (sleeps)
      for (const int64_t other : chosen)
        if (permits_.part_of(other) == left) {
          sleepers_[other]->begin_here();
          break;
        }
    ++change_;
  }
  std::erase(chosen, member);
  wake(chosen);
  if (!sleeps) return;
  const PhaseScope waiting(Phase::wait, "a part of the network");
  sleep(member);
}

void Crew::go_outside(int64_t member) {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    check_running();
    pause(member);
    permits_.go_outside(member);
    chosen = permits_.take_free();
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
    sleeps = permits_.wants(member);
    ++change_;
  }
  std::erase(chosen, member);
  wake(chosen);
  if (sleeps) return sleep(member);
  began_[member] = Clock::now();
}

void Crew::let_all_come() {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    permits_.let_all_come();
    chosen = permits_.take_free();
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
    chosen = permits_.take_free();
    ++change_;
  }
  wake(chosen);
}

}  // namespace lockstep::parallel
