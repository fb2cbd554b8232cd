// SPDX-License-Identifier: Apache-2.0
#include "parallel/functional/meeting.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

at::Tensor Meeting::meet(int64_t replica, std::vector<at::Tensor> mine, const Peers::Joint& joint) {
  Lock lock(mutex_);
  check_running();
  const uint64_t meeting = held_;
  brought_[replica] = std::move(mine);
  ++arrived_;
  if (left_ >= 0)
    stop_for_good(std::make_exception_ptr(
        Error(text("meet: replica ", replica, " waits for replica ", left_,
                   ", which has returned; expected the same synchronised layers on every replica"))));
  change_.notify_all();
  if (replica != 0) {
    while (!stopped_ && held_ == meeting) change_.wait(lock);
  } else {
    while (!stopped_ && arrived_ != replicas_) change_.wait(lock);
    check_running();
    lock.unlock();  // the others wait; nobody touches what they brought
    try {
      results_ = joint(brought_);
    } catch (...) {
      lock.lock();
      stop_for_good(std::current_exception());
      throw;
    }
    lock.lock();
    for (auto& brought : brought_) brought.clear();
    arrived_ = 0;
    ++held_;
    change_.notify_all();
  }
  if (held_ == meeting) check_running();
  return std::move(results_[replica]);
}

void Meeting::leave(int64_t replica) {
  const Lock lock(mutex_);
  left_ = replica;
  if (arrived_ > 0 && !stopped_)
    stop_for_good(std::make_exception_ptr(
        Error(text("meet: replica ", replica, " has returned while another waits for it; expected the same ",
                   "synchronised layers on every replica"))));
}

void Meeting::stop() noexcept {
  const Lock lock(mutex_);
  stop_for_good(nullptr);
}

void Meeting::stop_for_good(std::exception_ptr error) noexcept {
  if (!stopped_) error_ = std::move(error);
  stopped_ = true;
  change_.notify_all();
}

void Meeting::check_running() const {
  if (!stopped_) return;
  if (error_) std::rethrow_exception(error_);
  throw MeetingStopped();
}

at::Tensor JointPeers::all_gather(const at::Tensor& mine) {
  return meet({mine}, [](const std::vector<std::vector<at::Tensor>>& brought) {
    std::vector<at::Tensor> all;
    for (const auto& each : brought) {
      require(each[0].sizes() == brought[0][0].sizes() && each[0].scalar_type() == brought[0][0].scalar_type(),
              "all_gather", "replicas brought ", each[0].sizes(), " and ", brought[0][0].sizes(),
              ", expected the same of each");
      all.push_back(each[0].to(brought[0][0].device()));
    }
    return std::vector<at::Tensor>(brought.size(), at::stack(all));
  });
}

}  // namespace lockstep::parallel
