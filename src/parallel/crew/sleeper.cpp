// SPDX-License-Identifier: Apache-2.0
#include "parallel/crew/sleeper.h"

#include <utility>

namespace lockstep::parallel {

void Sleeper::enroll() noexcept {
  thread_ = pthread_self();
  pthread_getaffinity_np(thread_, sizeof allowed_, &allowed_);
}

void Sleeper::sleep() {
  while (sem_wait(&woken_) != 0) {
  }
  if (std::exchange(bound_, false)) pthread_setaffinity_np(thread_, sizeof allowed_, &allowed_);
}

void Sleeper::begin_on(int core) noexcept {
  if (!stays_) bound_ = bind_to(core);
}

void Sleeper::stay_here() noexcept {
  stays_ = bind_to(sched_getcpu());
}

void Sleeper::roam() noexcept {
  if (std::exchange(stays_, false)) pthread_setaffinity_np(thread_, sizeof allowed_, &allowed_);
}

bool Sleeper::bind_to(int core) noexcept {
  if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed_)) return false;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  return pthread_setaffinity_np(thread_, sizeof only, &only) == 0;
}

}  // namespace lockstep::parallel
