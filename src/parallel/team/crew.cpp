// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/crew.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/context/timeline_scope.h"

namespace lockstep::parallel {
namespace {

// A step's end is usually a matter of microseconds; past this the core is better used by another thread.
constexpr auto kSpin = std::chrono::microseconds(60);

// How many of its last meetings say how long a member computes for the next one.
constexpr int kMemory = 8;

}  // namespace

Crew::Crew(int64_t members, const std::vector<int64_t>& permits)
    : members_(members),
      arrivals_(members, 0),
      awaits_(members, 0),
      free_(permits),
      sleeps_(members, false),
      wants_(members, false),
      where_(members, 0),
      comes_(members, false),
      returns_(members, false),
      kept_(members, 0),
      waits_(members, false),
      began_(members, Clock::now()),
      took_(members, Clock::duration::zero()) {
  for (int64_t m = 0; m < members; ++m) sleepers_.push_back(std::make_unique<Sleeper>());
  for (auto part = permits.begin(); part != permits.end(); ++part)
    limits_.push_back(std::accumulate(part, permits.end(), int64_t{0}));
}

void Crew::check_running() const {
  if (stopped_.load()) throw CrewStopped();
}

void Crew::sleep(int64_t member) {
  sleepers_[member]->sleep();
  check_running();
  began_[member] = Clock::now();
}

void Crew::hand_over(int64_t member, int64_t next) {
  sleepers_[next]->wake();
  sleep(member);
}

// It has come to where it may have to wait.
void Crew::pause(int64_t member) {
  if (parts() > 1) return;  // its thread has slept at borders
  took_[member] += (Clock::now() - began_[member] - took_[member]) / kMemory;
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

// Whoever has left never comes.
void Crew::refuse_to_wait(const char* what) const {
  fail(what, left_, left_ == 1 ? " replica has" : " replicas have",
       " returned while others wait in this call, expected the same calls in the same order on every replica");
}

// Those who call something else never come either.
void Crew::require_same_call(bool same, const char* what, const char* other) {
  require(same, what, "a replica called this while another waits in ", other,
          ", expected the same calls in the same order on every replica");
}

uint32_t Crew::wait_for_change(uint32_t seen) const {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  while (std::chrono::steady_clock::now() < until)
    for (int i = 0; i < 64; ++i)
      if (change_.load(std::memory_order_acquire) != seen) return change_.load();
  change_.wait(seen);
  return change_.load();
}

void Crew::publish(CrewWork work) {
  // Work without tasks is passed over here, so that no one is woken for nothing.
  while (work.count == 0) {
    if (!work.next) return finish();
    work = work.next();
  }
  auto underway = std::make_shared<Underway>();
  underway->work = std::move(work);
  {
    const Lock lock(mutex_);
    underway_ = std::move(underway);
    ++change_;
  }
  change_.notify_all();
}

void Crew::finish() {
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    underway_.reset();
    ++meetings_;
    wants_.swap(sleeps_);  // all have met, so nobody wanted a permit
    for (int64_t m = 0; m < members_; ++m) {
      waits_[m] = false;
      if (wants_[m]) where_[m] = in_no_pass();
    }
    chosen = take_free_permits();
    ++change_;
  }
  wake(chosen);
}

void Crew::help(Underway& underway, int64_t member, Phase work) {
  const PhaseScope working(work);
  try {
    for (int64_t i; !stopped_ && (i = underway.next.fetch_add(1)) < underway.work.count;) {
      underway.work.run(i);
      if (underway.done.fetch_add(1) + 1 == underway.work.count)
        publish(underway.work.next ? underway.work.next() : CrewWork{});
    }
  } catch (...) {
    stop(member, std::current_exception());
  }
}

void Crew::meet(int64_t member, const char* what, const std::function<CrewWork()>& on_last, Phase work) {
  const PhaseScope waiting(Phase::wait, what);
  uint64_t meeting;
  uint32_t seen;
  bool last, makes_room;
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    check_running();
    if (left_ > 0) refuse_to_wait(what);
    if (arrived_ == 0) purpose_ = what;
    met_after_ = arrived_ == 0 ? arrivals_[member] : std::min(met_after_, arrivals_[member]);
    require_same_call(std::strcmp(purpose_, what) == 0, what, purpose_);
    require_same_call(std::ranges::max(awaits_) <= arrivals_[member], what, awaited_);
    pause(member);
    makes_room = begin_to_wait(member, chosen);
    meeting = meetings_;
    seen = change_;
    last = ++arrived_ == members_;
    if (last) arrived_ = 0;
  }
  if (makes_room) wake(chosen);
  if (last) {
    try {
      const PhaseScope working(work);
      publish(on_last());
    } catch (...) {
      stop(member, std::current_exception());
    }
  }
  for (;;) {
    std::shared_ptr<Underway> underway;
    int64_t next;
    bool stays;
    {
      const Lock lock(mutex_);
      check_running();
      if (meetings_ != meeting) {
        began_[member] = Clock::now();
        return;
      }
      seen = change_;
      underway = underway_;
      next = underway ? kNobody : successor(member);
      stays = next == kNobody || take_spare_permit(member);
      sleeps_[member] = !stays;
      if (!stays) sleepers_[next]->begin_here();
    }
    if (!stays) return hand_over(member, next);
    if (next != kNobody) {
      sleepers_[next]->wake();
      continue;
    }
    if (underway) help(*underway, member, work);
    if (change_ == seen) wait_for_change(seen);
  }
}

uint64_t Crew::arrive(int64_t member, const char* what, const std::function<void()>& on_last) {
  uint64_t arrival;
  {
    const Lock lock(mutex_);
    check_running();
    arrival = arrivals_[member]++;
    if (arrival >= left_after_) refuse_to_wait(what);
    for (const uint64_t arrivals : arrivals_)
      if (arrivals <= arrival) return arrival;
  }
  // Nobody can be the last of the next arrival before this thread has come to it: these run one after the other.
  try {
    on_last();
  } catch (...) {
    stop(member, std::current_exception());
  }
  std::vector<int64_t> chosen;
  {
    const Lock lock(mutex_);
    check_running();
    ++complete_;
    for (int64_t m = 0; m < members_; ++m)
      if (awaits_[m] != 0 && awaits_[m] <= complete_) {
        awaits_[m] = 0;
        waits_[m] = false;
        if (sleeps_[m]) wants_[m] = true;
        sleeps_[m] = false;
      }
    chosen = take_free_permits();
    ++change_;
  }
  wake(chosen);
  return arrival;
}

void Crew::await(int64_t member, uint64_t arrival, const char* what) {
  const PhaseScope waiting(Phase::wait, what);
  {
    const Lock lock(mutex_);
    pause(member);
  }
  for (;;) {
    uint32_t seen;
    int64_t next;
    bool makes_room;
    std::vector<int64_t> chosen;
    {
      const Lock lock(mutex_);
      check_running();
      if (complete_ > arrival) break;
      if (arrival >= left_after_) refuse_to_wait(what);
      require_same_call(arrived_ == 0 || met_after_ > arrival, what, purpose_);
      awaits_[member] = arrival + 1;
      awaited_ = what;
      makes_room = begin_to_wait(member, chosen);
      seen = change_;
      next = successor(member);
      sleeps_[member] = next != kNobody;
      if (next != kNobody) sleepers_[next]->begin_here();
    }
    if (makes_room) wake(chosen);
    if (next != kNobody) return hand_over(member, next);
    wait_for_change(seen);
  }
  began_[member] = Clock::now();
}

void Crew::stop(int64_t member, std::exception_ptr error) noexcept {
  const Lock lock(mutex_);
  if (stopped_.exchange(true)) return;
  failed_member_ = member;
  error_ = std::move(error);
  ++change_;
  change_.notify_all();
  for (const auto& sleeper : sleepers_) sleeper->wake();
}

}  // namespace lockstep::parallel
