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

void Sleeper::begin_here() noexcept {
  if (!stays_) bound_ = bind_here();
}

void Sleeper::stay_here() noexcept {
  stays_ = bind_here();
}

void Sleeper::roam() noexcept {
  if (std::exchange(stays_, false)) pthread_setaffinity_np(thread_, sizeof allowed_, &allowed_);
}

bool Sleeper::bind_here() noexcept {
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return false;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(here, &only);
  return pthread_setaffinity_np(thread_, sizeof only, &only) == 0;
}

}  // namespace lockstep::parallel
