// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/periodic.h"

#include <utility>

#include "lockstep/base/detail/guarded.h"

namespace lockstep::comm {

struct Periodic::State {
  Mutex mutex{};
  Condition changed{};
  bool ends LOCKSTEP_GUARDED_BY(mutex) = false;

  /// False: this is the end.
  bool pause(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    Lock lock(mutex);
    while (!ends && std::chrono::steady_clock::now() < until) changed.wait_until(lock, until);
    return !ends;
  }
};

Periodic::Periodic(std::chrono::milliseconds every, std::function<void()> look) : state_(std::make_shared<State>()) {
  std::packaged_task<void()> task([state = state_, every, look = std::move(look)] {
    do look();
    while (state->pause(every));
  });
  ended_ = task.get_future();
  thread_ = std::thread(std::move(task));
}

Periodic::~Periodic() {
  {
    const Lock lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_all();
  if (ended_.wait_for(std::chrono::seconds(1)) == std::future_status::ready)
    thread_.join();
  else
    thread_.detach();
}

}  // namespace lockstep::comm
