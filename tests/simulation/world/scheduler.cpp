// SPDX-License-Identifier: Apache-2.0
#include "simulation/world/scheduler.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "simulation/world/real.h"

namespace lockstep::simulation {
namespace {

// Far more than a run takes: it goes round in circles.
constexpr uint64_t kMostTurns = 5'000'000;
// Of the virtual clock.
constexpr Time kTurn = kMicrosecond, kLookAtClock = 4 * kMicrosecond;
// How often a thread that could go on is made to wait.
constexpr double kPause = 0.05;

thread_local Scheduler* scheduler_here = nullptr;
thread_local SimulatedThread* thread_here = nullptr;

void wait_while(std::atomic<int>& word, int value) {
  while (word.load(std::memory_order_acquire) == value)
    real::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void set(std::atomic<int>& word) {
  word.store(1, std::memory_order_release);
  real::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

uint64_t Draws::next() {  // SplitMix64
  uint64_t x = state_ += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

Scheduler::Scheduler(uint64_t seed) : draws_(seed) {}
Scheduler::~Scheduler() = default;

Scheduler* Scheduler::of_this_thread() {
  return scheduler_here;
}
SimulatedThread* Scheduler::this_thread() {
  return thread_here;
}

SimulatedThread& Scheduler::add_thread(std::function<void*()> body) {
  auto& thread = *threads_.emplace_back(std::make_unique<SimulatedThread>());
  thread.number = static_cast<int>(threads_.size()) - 1;
  if (thread_here != nullptr) thread.process = thread_here->process;
  thread.body = std::move(body);
  return thread;
}

// On the new thread. What is left after it, such as destructors of its own variables, runs as in any program.
void* Scheduler::begin(SimulatedThread& thread, Scheduler& scheduler) {
  thread.kernel_number = gettid();
  wait_while(thread.go, 0);
  scheduler_here = &scheduler;
  thread_here = &thread;
  void* const result = thread.body();
  thread.body = {};
  thread.state = SimulatedThread::State::ended;
  scheduler.wake(&thread);
  scheduler_here = nullptr;
  thread_here = nullptr;
  scheduler.hand_over();
  return result;
}

SimulatedThread* Scheduler::find(pthread_t handle) {
  for (const auto& thread : threads_)
    if (!thread->joined && thread->handle == handle) return thread.get();
  return nullptr;
}

void Scheduler::run(const std::string& name, const std::function<void()>& body) {
  name_ = name;
  SimulatedThread& first = add_thread([&]() -> void* {
    body();
    return nullptr;
  });
  struct Start {
    SimulatedThread& thread;
    Scheduler& scheduler;
  } start{first, *this};
  const auto main = [](void* at) -> void* {
    const Start copy = *static_cast<Start*>(at);
    return begin(copy.thread, copy.scheduler);
  };
  if (real::pthread_create(&first.handle, nullptr, main, &start) != 0) give_up("no thread could be started");
  set(first.go);
  wait_while(ended_, 0);
  real::pthread_join(first.handle, nullptr);
}

Time Scheduler::read_clock() {
  return now_ += kLookAtClock;
}

void Scheduler::at(Time when, std::function<void()> event) {
  events_.push({std::max(when, now_), events_made_++, std::move(event)});
}

void Scheduler::make_ready(SimulatedThread& thread, bool timed_out) {
  thread.state = SimulatedThread::State::ready;
  thread.timed_out = timed_out;
}

void Scheduler::pass_events() {
  while (!events_.empty() && events_.top().when <= now_) {
    const auto call = std::move(const_cast<Event&>(events_.top()).call);
    events_.pop();
    trace_ = trace_ * 0x100000001B3u + 0x9E37u;
    is_in_event_ = true;
    call();
    is_in_event_ = false;
  }
  for (const auto& thread : threads_)
    if (thread->state == SimulatedThread::State::blocked && thread->until <= now_) make_ready(*thread, true);
}

// To the next moment at which something happens. False: there is none.
bool Scheduler::advance() {
  Time next = events_.empty() ? kNever : events_.top().when;
  for (const auto& thread : threads_)
    if (thread->state == SimulatedThread::State::blocked && (!is_frozen(thread->process) || thread->lent))
      next = std::min(next, thread->until);
  if (next == kNever) return false;
  now_ = std::max(now_, next);
  return true;
}

SimulatedThread* Scheduler::choose() {
  for (;;) {
    pass_events();
    int64_t ready = 0, left = 0;
    for (const auto& thread : threads_) {
      ready += may_run(*thread);
      left += thread->state != SimulatedThread::State::ended;
    }
    if (left == 0) return nullptr;
    if (ready == 0) {
      if (!advance()) give_up("all wait, and nothing is on its way");
      continue;
    }
    int64_t chosen = draws_.below(ready);
    for (const auto& thread : threads_)
      if (may_run(*thread) && chosen-- == 0) return thread.get();
  }
}

// Of the thread that runs to the next one, which may be the same.
void Scheduler::hand_over() {
  SimulatedThread* const me = thread_here;
  if (is_in_event_) give_up("an event let others run");
  now_ += kTurn;
  if (++turns_ > kMostTurns) give_up("it never comes to an end");
  SimulatedThread* const next = choose();
  if (next == nullptr) return set(ended_);
  trace_ = trace_ * 0x100000001B3u + static_cast<uint64_t>(next->number) + static_cast<uint64_t>(now_);
  if (next == me) return;
  if (me != nullptr) me->go.store(0, std::memory_order_relaxed);
  set(next->go);
  if (me != nullptr) wait_while(me->go, 0);
}

bool Scheduler::block(const void* on, const char* what, Time until) {
  SimulatedThread& me = *thread_here;
  me.state = SimulatedThread::State::blocked;
  me.waits_on = on;
  me.waits_for = what;
  me.until = until;
  hand_over();
  me.waits_on = nullptr;
  me.until = kNever;
  return !me.timed_out;
}

void Scheduler::wake(const void* on, int count) {
  for (; count > 0; --count) {
    int64_t waiting = 0;
    const auto waits = [&](const SimulatedThread& thread) {
      return thread.state == SimulatedThread::State::blocked && thread.waits_on == on;
    };
    for (const auto& thread : threads_) waiting += waits(*thread);
    if (waiting == 0) return;
    int64_t chosen = draws_.below(waiting);
    for (const auto& thread : threads_)
      if (waits(*thread) && chosen-- == 0) {
        make_ready(*thread, false);
        break;
      }
  }
}

void Scheduler::yield() {
  hand_over();
}

void Scheduler::maybe_yield() {
  if (draws_.chance(kPause)) hand_over();
}

void Scheduler::freeze(int process) {
  frozen_[process] = true;
  if (thread_here != nullptr && thread_here->process == process) yield();
}

void Scheduler::thaw(int process) {
  frozen_[process] = false;
}

bool Scheduler::lend_to_owner(pid_t owner) {
  for (const auto& thread : threads_) {
    if (thread->kernel_number != owner || thread->state == SimulatedThread::State::ended) continue;
    thread->lent = is_frozen(thread->process);
    return true;
  }
  return false;
}

void Scheduler::give_back_loan() {
  if (!thread_here->lent) return;
  thread_here->lent = false;
  if (is_frozen(thread_here->process)) yield();
}

void Scheduler::give_up(const char* why) const {
  std::fprintf(stderr, "%s: %s, at %.6f s\n", name_.c_str(), why, static_cast<double>(now_) / kSecond);
  for (const auto& thread : threads_) {
    if (thread->state == SimulatedThread::State::ended) continue;
    const bool blocked = thread->state == SimulatedThread::State::blocked;
    std::fprintf(stderr, "  thread %d of process %d%s %s%s\n", thread->number, thread->process,
                 is_frozen(thread->process) ? " (dead)" : "", blocked ? "waits for " : "could run",
                 blocked ? thread->waits_for : "");
  }
  std::fflush(stderr);
  std::_Exit(1);
}

}  // namespace lockstep::simulation
