// SPDX-License-Identifier: Apache-2.0
// A crew's meetings: who waits for whom, and what they do together.
#include "parallel/crew/crew.h"

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

}  // namespace

Crew::Crew(int64_t members, const std::vector<int64_t>& permits, int64_t ahead, int64_t behind)
    : members_(members),
      is_divided_(permits.size() > 1),
      arrivals_(members, 0),
      awaits_(members, 0),
      permits_(members, permits, ahead, behind),
      late_(members, std::vector<std::deque<LateWork>>(permits.size())),
      helped_(members, 0),
      began_(members, Clock::now()) {
  for (int64_t m = 0; m < members; ++m) sleepers_.push_back(std::make_unique<Sleeper>());
}

void Crew::check_running() const {
  if (stopped_.load()) throw CrewStopped();
}

// It has come to where it may have to wait.
void Crew::pause(int64_t member) {
  permits_.add_time(member, Clock::now() - began_[member]);
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
    permits_.end_meeting();
    chosen = take_free();
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
    int64_t next, helped = Permits::kNobody;
    LateWork layer;
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
      next = underway ? Permits::kNobody : permits_.successor(member);
      stays = next == Permits::kNobody || permits_.take_spare(member);
      permits_.sleep(member, !stays);
      if (!stays) leave_core();
      if (next != Permits::kNobody) take_cores({next});
      if (next == Permits::kNobody && !underway) helped = begin_to_help(member, layer);
    }
    if (!stays) return hand_over(member, next);
    if (next != Permits::kNobody) {
      sleepers_[next]->wake();
      continue;
    }
    if (layer) {
      help_late(member, helped, layer);
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
        permits_.stop_waiting(m);
      }
    chosen = take_free();
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
      next = permits_.successor(member);
      permits_.sleep(member, next != Permits::kNobody);
      if (next != Permits::kNobody) {
        leave_core();
        take_cores({next});
      }
    }
    if (makes_room) wake(chosen);
    if (next != Permits::kNobody) return hand_over(member, next);
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
