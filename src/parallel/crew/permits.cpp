// SPDX-License-Identifier: Apache-2.0
// Of a crew's members: who may compute.
#include "parallel/crew/crew.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/context/timeline_scope.h"

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

// Whether it can use a permit of this part, and no limit keeps it from that.
bool Crew::may_go_on(int64_t member, int64_t part) const noexcept {
  if (!wants_[member]) return false;
  if (where_[member] == kAnyPart) return true;
  if (where_[member] != part) return false;
  if (!comes_[member]) return true;
  int64_t in_flight = 0;
  for (int64_t m = 0; m < members_; ++m) in_flight += m != member && kept_[m] > part && !waits_[m];
  return in_flight < limits_[part];
}

// Who goes back comes first, so that activations are let go, and who is in no pass comes last.
int Crew::urgency(int64_t member) const noexcept {
  if (where_[member] == kAnyPart) return 0;
  return comes_[member] ? 1 : 2;
}

bool Crew::is_before(int64_t member, int64_t other) const noexcept {
  const int mine = urgency(member), others = urgency(other);
  return mine != others ? mine > others : took_[member] > took_[other];
}

// Whether its pass comes to this part no more before all meet.
bool Crew::is_past(int64_t member, int64_t part) const noexcept {
  return waits_[member] || (returns_[member] && kept_[member] > 0 && kept_[member] <= part);
}

// The member which is to be handed a permit of this part; kNobody where none wants one. Who holds the lock only chooses
// it and wakes it afterwards: whom that wakes may take this core at once, for milliseconds in which all others would
// wait for the lock.
int64_t Crew::next_member(int64_t part) noexcept {
  int64_t next = kNobody;
  for (int64_t m = 0; m < members_; ++m)
    if (may_go_on(m, part) && (next == kNobody || is_before(m, next))) next = m;
  if (next == kNobody) return next;
  wants_[next] = false;
  where_[next] = part;
  if (comes_[next]) kept_[next] = part + 1;
  comes_[next] = false;
  return next;
}

// The member which is handed the calling one's permit.
int64_t Crew::successor(int64_t member) noexcept {
  return next_member(where_[member]);
}

// In place of one that it has handed on, so that it can help with the work that comes when all have met.
bool Crew::take_spare_permit(int64_t member) {
  for (int64_t part = parts() - 1; part > 0; --part) {
    if (free_[part] == 0) continue;
    bool spare = true;
    for (int64_t m = 0; m < members_; ++m) spare &= is_past(m, part);
    if (!spare) continue;
    --free_[part];
    where_[member] = part;
    return true;
  }
  return false;
}

std::vector<int64_t> Crew::take_free_permits() {
  std::vector<int64_t> members;
  for (int64_t part = 0; part < parts(); ++part)
    for (; free_[part] > 0; --free_[part]) {
      const int64_t next = next_member(part);
      if (next == kNobody) break;
      members.push_back(next);
    }
  return members;
}

// A member in flight that waits makes room for others: true where it does. Of these, `chosen` are to be woken.
bool Crew::begin_to_wait(int64_t member, std::vector<int64_t>& chosen) {
  const bool waited = waits_[member];
  waits_[member] = true;
  if (waited || kept_[member] == 0) return false;
  chosen = take_free_permits();
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
    for (int64_t part = 0; part < parts(); ++part)
      if (free_[part] > 0) {
        --free_[part];
        where_[member] = part;
        return;
      }
    // Whoever waits for this member in a meeting holds the permit that it needs.
    wants_[member] = true;
    where_[member] = in_no_pass();
    ++change_;
  }
  change_.notify_all();
  const PhaseScope waiting(Phase::wait, "a permit");
  sleep(member);
}

void Crew::leave(int64_t member) {
  Lock lock(mutex_);
  if (stopped_) return;  // those who wanted a permit may have gone
  kept_[member] = 0;
  const int64_t next = successor(member);
  if (next == kNobody)
    ++free_[where_[member]];
  else
    sleepers_[next]->begin_here();
  ++left_;
  left_after_ = std::min(left_after_, arrivals_[member]);
  const std::vector<int64_t> others = take_free_permits();
  if (parts() > 1) ++change_;
  lock.unlock();
  if (next != kNobody) sleepers_[next]->wake();
  if (parts() > 1) wake(others);
  lock.lock();
  if (stopped_) return;
  if (arrived_ > 0) refuse_to_wait(purpose_);
  if (std::ranges::max(awaits_) > left_after_) refuse_to_wait(awaited_);
}

void Crew::come_to(int64_t member, int64_t part) {
  exchange_permit(member, part, true);
}

void Crew::go_back_to(int64_t member, int64_t part) {
  exchange_permit(member, part, false);
}

void Crew::exchange_permit(int64_t member, int64_t part, bool comes) {
  std::vector<int64_t> chosen;
  bool sleeps;
  {
    const Lock lock(mutex_);
    check_running();
    const int64_t left = where_[member];
    ++free_[left];
    wants_[member] = true;
    where_[member] = part;
    comes_[member] = comes;
    returns_[member] = !comes;
    kept_[member] = comes ? part : part + 1;
    chosen = take_free_permits();
    sleeps = wants_[member];
    // This core is about to be free for whoever takes the permit that was left.
    if (sleeps)
      for (const int64_t other : chosen)
        if (where_[other] == left) {
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

void Crew::end_pass(int64_t member) {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    check_running();
    kept_[member] = 0;
    chosen = take_free_permits();
    ++change_;
  }
  wake(chosen);
}

}  // namespace lockstep::parallel
