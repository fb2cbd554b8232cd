// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/work.h"

#include <algorithm>
#include <utility>

#include "comm/backend.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/error.h"

namespace lockstep::comm {

CommError::CommError(int rank, std::string operation, double seconds, const std::string& what)
    : std::runtime_error(what), rank_(rank), operation_(std::move(operation)), seconds_(seconds) {}

struct Work::Shared {
  std::shared_ptr<WorkState> state;
  std::function<void()> finish;  // copies results to where they belong; once
};

Work::Work(std::shared_ptr<WorkState> state, std::function<void()> finish)
    : shared_(std::make_shared<Shared>(Shared{std::move(state), std::move(finish)})) {}

void Work::wait() {
  wait_for(kLongestWait);
}

bool Work::wait_for(std::chrono::milliseconds time) {
  if (!shared_) return true;
  const auto longest = std::min<std::chrono::milliseconds>(time, kLongestWait);
  if (!shared_->state->wait_until(std::chrono::steady_clock::now() + longest)) return false;
  if (shared_->finish) std::exchange(shared_->finish, {})();
  return true;
}

bool Work::done() const {
  return !shared_ || shared_->state->done();
}

}  // namespace lockstep::comm
