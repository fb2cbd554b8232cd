// SPDX-License-Identifier: Apache-2.0
// How a thread waits for a permit.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

namespace lockstep::parallel {

/// Lets one thread sleep until another wakes it.
///
/// Whoever hands on its permit is about to sleep, so its core is about to be free. The scheduler does not know that: it
/// likes to wake a thread where it ran last, and where other programs keep the cores busy, two threads with a permit
/// each then share one of them for many milliseconds. So the next one may be bound to its predecessor's core until it
/// runs there.
class Sleeper {
 public:
  Sleeper() { sem_init(&woken_, 0, 0); }
  ~Sleeper() { sem_destroy(&woken_); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// Says that the calling thread is the one that will wait here.
  void enroll() noexcept;

  void sleep();

  /// The calling thread, which is the one that waits here, stays on the core that it is on, until it may roam again.
  void stay_here() noexcept;
  void roam() noexcept;

  /// It will begin on this core. Comes before wake(), from the thread that will call that.
  void begin_on(int core) noexcept;

  /// Lets it go on, now or when it comes to wait. It may take the caller's core at once.
  void wake() noexcept { sem_post(&woken_); }

 private:
  bool bind_to(int core) noexcept;  // its thread

  sem_t woken_;  // std::counting_semaphore yields before it sleeps: to whoever is on this core, for a whole time slice
  pthread_t thread_{};
  cpu_set_t allowed_{};  // the cores it may run on
  bool bound_ = false;
  bool stays_ = false;
};

}  // namespace lockstep::parallel
