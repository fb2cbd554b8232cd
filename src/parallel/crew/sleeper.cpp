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
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(here, &only);
  bound_ = pthread_setaffinity_np(thread_, sizeof only, &only) == 0;
}

}  // namespace lockstep::parallel
