// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/crew.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/context/timeline_scope.h"

namespace lockstep::parallel {
namespace {

// A step's end is usually a matter of microseconds; past this the core is better used by another thread.
constexpr auto kSpin = std::chrono::microseconds(60);

// How many of its last meetings say how long a member computes for the next one.
constexpr int kMemory = 8;

}  // namespace

Crew::Crew(int64_t members, int64_t permits)
    : members_(members),
      arrivals_(members, 0),
      awaits_(members, 0),
      free_(std::min(permits, members)),
      sleeps_(members, false),
      wants_(members, false),
      began_(members, Clock::now()),
      took_(members, Clock::duration::zero()) {
  for (int64_t m = 0; m < members; ++m) sleepers_.push_back(std::make_unique<Sleeper>());
}

void Crew::check_running() const {
  if (stopped_.load()) throw CrewStopped();
}

void Crew::sleep(int64_t member) {
  sleepers_[member]->sleep();
  check_running();
  began_[member] = Clock::now();
}

void Crew::hand_over(int64_t member, Sleeper& next) {
  next.wake();
  sleep(member);
}

// It has come to where it may have to wait.
void Crew::pause(int64_t member) {
  took_[member] += (Clock::now() - began_[member] - took_[member]) / kMemory;
}

// That of the member which is to be handed a permit; null where nobody wants one. Who holds the lock only chooses it
// and gives it afterwards: whom that wakes may take this core at once, for milliseconds in which all others would wait
// for the lock.
Sleeper* Crew::next_sleeper() noexcept {
  int64_t next = -1;
  for (int64_t m = 0; m < members_; ++m)
    if (wants_[m] && (next < 0 || took_[m] > took_[next])) next = m;
  if (next < 0) return nullptr;
  wants_[next] = false;
  return sleepers_[next].get();
}

// That of the member which is handed the calling one's permit.
Sleeper* Crew::successor() noexcept {
  Sleeper* const next = next_sleeper();
  if (next != nullptr) next->begin_here();
  return next;
}

std::vector<Sleeper*> Crew::take_free_permits() {
  std::vector<Sleeper*> sleepers;
  for (; free_ > 0; --free_) {
    Sleeper* const next = next_sleeper();
    if (next == nullptr) break;
    sleepers.push_back(next);
  }
  return sleepers;
}

void Crew::wake(const std::vector<Sleeper*>& sleepers) {
  change_.notify_all();
  for (Sleeper* sleeper : sleepers) sleeper->wake();
}

void Crew::enter(int64_t member) {
  sleepers_[member]->enroll();
  {
    const Lock lock(mutex_);
    check_running();
    if (free_ > 0) {
      --free_;
      return;
    }
    // Whoever waits for this member in a meeting holds the permit that it needs.
    wants_[member] = true;
    ++change_;
  }
  change_.notify_all();
  const PhaseScope waiting(Phase::wait, "a permit");
  sleep(member);
}

void Crew::leave(int64_t member) {
  Lock lock(mutex_);
  if (stopped_) return;  // those who wanted a permit may have gone
  Sleeper* const next = successor();
  if (next == nullptr) ++free_;
  ++left_;
  left_after_ = std::min(left_after_, arrivals_[member]);
  lock.unlock();
  if (next != nullptr) next->wake();
  lock.lock();
  if (stopped_) return;
  if (arrived_ > 0) refuse_to_wait(purpose_);
  if (std::ranges::max(awaits_) > left_after_) refuse_to_wait(awaited_);
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
  auto stage = std::make_shared<Stage>();
  stage->work = std::move(work);
  {
    const Lock lock(mutex_);
    stage_ = std::move(stage);
    ++change_;
  }
  change_.notify_all();
}

void Crew::finish() {
  std::vector<Sleeper*> sleepers;
  {
    const Lock lock(mutex_);
    stage_.reset();
    ++meetings_;
    wants_.swap(sleeps_);  // all have met, so nobody wanted a permit
    sleepers = take_free_permits();
    ++change_;
  }
  wake(sleepers);
}

void Crew::help(Stage& stage, int64_t member, Phase work) {
  const PhaseScope working(work);
  try {
    for (int64_t i; !stopped_ && (i = stage.next.fetch_add(1)) < stage.work.count;) {
      stage.work.run(i);
      if (stage.done.fetch_add(1) + 1 == stage.work.count) publish(stage.work.next ? stage.work.next() : CrewWork{});
    }
  } catch (...) {
    stop(member, std::current_exception());
  }
}

void Crew::meet(int64_t member, const char* what, const std::function<CrewWork()>& on_last, Phase work) {
  const PhaseScope waiting(Phase::wait, what);
  uint64_t meeting;
  uint32_t seen;
  bool last;
  {
    const Lock lock(mutex_);
    check_running();
    if (left_ > 0) refuse_to_wait(what);
    if (arrived_ == 0) purpose_ = what;
    met_after_ = arrived_ == 0 ? arrivals_[member] : std::min(met_after_, arrivals_[member]);
    require_same_call(std::strcmp(purpose_, what) == 0, what, purpose_);
    require_same_call(std::ranges::max(awaits_) <= arrivals_[member], what, awaited_);
    pause(member);
    meeting = meetings_;
    seen = change_;
    last = ++arrived_ == members_;
    if (last) arrived_ = 0;
  }
  if (last) {
    try {
      const PhaseScope working(work);
      publish(on_last());
    } catch (...) {
      stop(member, std::current_exception());
    }
  }
  for (;;) {
    std::shared_ptr<Stage> stage;
    Sleeper* next;
    {
      const Lock lock(mutex_);
      check_running();
      if (meetings_ != meeting) {
        began_[member] = Clock::now();
        return;
      }
      seen = change_;
      stage = stage_;
      next = stage ? nullptr : successor();
      sleeps_[member] = next != nullptr;
    }
    if (next != nullptr) return hand_over(member, *next);
    if (stage) help(*stage, member, work);
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
  std::vector<Sleeper*> sleepers;
  {
    const Lock lock(mutex_);
    check_running();
    ++complete_;
    for (int64_t m = 0; m < members_; ++m)
      if (awaits_[m] != 0 && awaits_[m] <= complete_) {
        awaits_[m] = 0;
        if (sleeps_[m]) wants_[m] = true;
        sleeps_[m] = false;
      }
    sleepers = take_free_permits();
    ++change_;
  }
  wake(sleepers);
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
    Sleeper* next;
    {
      const Lock lock(mutex_);
      check_running();
      if (complete_ > arrival) break;
      if (arrival >= left_after_) refuse_to_wait(what);
      require_same_call(arrived_ == 0 || met_after_ > arrival, what, purpose_);
      awaits_[member] = arrival + 1;
      awaited_ = what;
      seen = change_;
      next = successor();
      sleeps_[member] = next != nullptr;
    }
    if (next != nullptr) return hand_over(member, *next);
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
