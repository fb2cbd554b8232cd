// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

/// Which mutex guards what, in words that clang checks (-Wthread-safety; its manual: "Thread Safety Analysis"). GCC
/// passes over them. CI's builds with sanitizers are clang's, and there a mistake is an error.
///
///     class Counter {
///      public:
///       void add() {
///         const Lock lock(mutex_);
///         add_locked();
///       }
///      private:
///       void add_locked() LOCKSTEP_REQUIRES(mutex_) { ++count_; }  // an error where the caller does not hold it
///       Mutex mutex_;
///       int count_ LOCKSTEP_GUARDED_BY(mutex_) = 0;                // an error where it is used without the mutex
///     };
///
/// What it cannot see: constructors and destructors, and what a reference or a lambda takes out of a function. So a
/// condition is awaited in a loop, not in a lambda.
#if defined(__clang__)
#define LOCKSTEP_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
#else
#define LOCKSTEP_THREAD_SAFETY(...)
#endif
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREAD_SAFETY(guarded_by(mutex))
#define LOCKSTEP_REQUIRES(...) LOCKSTEP_THREAD_SAFETY(requires_capability(__VA_ARGS__))

namespace lockstep {

class LOCKSTEP_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() LOCKSTEP_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() LOCKSTEP_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

/// Holds a mutex while it lives, and may let it go in between.
class LOCKSTEP_THREAD_SAFETY(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) LOCKSTEP_THREAD_SAFETY(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~Lock() LOCKSTEP_THREAD_SAFETY(release_capability()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() LOCKSTEP_THREAD_SAFETY(acquire_capability()) { lock_.lock(); }
  void unlock() LOCKSTEP_THREAD_SAFETY(release_capability()) { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

/// What threads sleep on until another says that something they look at has changed. They wake up for nothing too.
class Condition {
 public:
  void wait(Lock& lock) { condition_.wait(lock.lock_); }
  /// False once the time has come.
  template <class Clock, class Duration>
  bool wait_until(Lock& lock, const std::chrono::time_point<Clock, Duration>& until) {
    return condition_.wait_until(lock.lock_, until) == std::cv_status::no_timeout;
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace lockstep
