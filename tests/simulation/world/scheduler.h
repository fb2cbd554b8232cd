// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <string>
#include <vector>

/// Threads of which one runs at a time, on a virtual clock: a seed decides who is next, so that it repeats a run
/// exactly. The threads are real ones that run unchanged code: interposed.cpp stands in for the functions of the C
/// library by which threads wait for each other and read the time.
namespace lockstep::simulation {

using Time = int64_t;  ///< nanoseconds
inline constexpr Time kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond, kSecond = 1000 * kMillisecond;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

/// Random numbers of a seed.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// From 0 to count - 1.
  int64_t below(int64_t count) { return static_cast<int64_t>(next() % static_cast<uint64_t>(count)); }
  /// From low to high, both included.
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

 private:
  uint64_t state_;
};

/// A thread of a simulation.
struct SimulatedThread {
  enum class State : uint8_t { ready, blocked, ended };
  int number = 0;
  int process = -1;  // of the simulated ones; -1: of none
  State state = State::ready;
  const void* waits_on = nullptr;
  const char* waits_for = "";
  Time until = kNever;
  bool timed_out = false;
  bool lent = false;  // its process is frozen, and it runs until it lets go of a mutex that another needs
  bool joined = false;
  pid_t kernel_number = 0;
  pthread_t handle{};
  std::atomic<int> go{0};  // 1: it is to run
  std::function<void*()> body;
};

class Scheduler {
 public:
  explicit Scheduler(uint64_t seed);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The one that the calling thread is simulated by; none for all other threads.
  static Scheduler* of_this_thread();
  static SimulatedThread* this_thread();

  /// Runs `body` as the first simulated thread, until it and all threads that came from it have ended. Where all wait
  /// and nothing is left to happen, or they never come to an end, the program ends with `name` and what they wait for.
  void run(const std::string& name, const std::function<void()>& body);

  Time now() const { return now_; }
  /// A look at the clock, which takes some time: who looks again and again sees it go on.
  Time read_clock();
  Draws& draws() { return draws_; }
  /// A number of all that has happened so far.
  uint64_t trace() const { return trace_; }

  /// Calls `event` when this time has come. It must not wait.
  void at(Time when, std::function<void()> event);

  // For the calling thread, which is a simulated one.
  /// Until wake() names the same object, or a time has come (then false).
  bool block(const void* on, const char* what, Time until = kNever);
  void wake(const void* on, int count = std::numeric_limits<int>::max());
  void sleep(Time time) { block(nullptr, "a pause", now_ + time); }
  /// Lets others run.
  void yield();
  /// Lets others run now and then.
  void maybe_yield();

  /// The threads of a frozen process run no more until it is thawed.
  void freeze(int process);
  void thaw(int process);
  bool is_frozen(int process) const { return process >= 0 && frozen_[process]; }

  // For interposed.cpp.
  SimulatedThread& add_thread(std::function<void*()> body);
  static void* begin(SimulatedThread& thread, Scheduler& scheduler);
  SimulatedThread* find(pthread_t handle);
  /// A simulated thread waits for a mutex that this one of the kernel's threads holds. False: it is none of ours.
  bool lend_to_owner(pid_t owner);
  void give_back_loan();

 private:
  struct Event {
    Time when;
    uint64_t number;
    std::function<void()> call;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };

  bool may_run(const SimulatedThread& thread) const {
    return thread.state == SimulatedThread::State::ready && (!is_frozen(thread.process) || thread.lent);
  }
  void pass_events();
  SimulatedThread* choose();
  bool advance();
  void hand_over();
  void make_ready(SimulatedThread& thread, bool timed_out);
  [[noreturn]] void give_up(const char* why) const;

  std::string name_;
  Draws draws_;
  Time now_ = 0;
  uint64_t trace_ = 0;
  uint64_t turns_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t events_made_ = 0;
  bool is_in_event_ = false;
  std::vector<std::unique_ptr<SimulatedThread>> threads_;
  std::vector<bool> frozen_ = std::vector<bool>(64, false);
  std::atomic<int> ended_{0};
};

}  // namespace lockstep::simulation
