// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/turn.h"

#include <utility>

namespace lockstep::parallel {

void Turn::enroll() noexcept {
  thread_ = pthread_self();
  pthread_getaffinity_np(thread_, sizeof allowed_, &allowed_);
}

void Turn::await() {
  while (sem_wait(&given_) != 0) {
  }
  if (std::exchange(bound_, false)) pthread_setaffinity_np(thread_, sizeof allowed_, &allowed_);
}

void Turn::begin_here() noexcept {
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(here, &only);
  bound_ = pthread_setaffinity_np(thread_, sizeof only, &only) == 0;
}

}  // namespace lockstep::parallel
