// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/executor.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "lockstep/comm/error.h"

namespace lockstep::comm {

// Owned by the queue and by the Works; it outlives its executor in the latter.
class Executor::Task : public WorkState, public std::enable_shared_from_this<Executor::Task> {
 public:
  Task(Executor& executor, std::function<void()> run, Clock::time_point deadline)
      : executor_(&executor), run_(std::move(run)), deadline_(deadline) {}

  bool done() override {
    const Lock lock(mutex_);
    return ended_;
  }

  bool wait_until(Clock::time_point until) override {
    // Running it here takes until the task's own deadline in the worst case: only where the caller has that long.
    if (until >= deadline_) {
      Lock lock(mutex_);
      Executor* executor = executor_;
      if (executor != nullptr && !ended_ && executor->claim(*this)) {
        lock.unlock();
        executor->run(*this);
      }
    }
    Lock lock(mutex_);
    while (!ended_)
      if (!changed_.wait_until(lock, until) && !ended_) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
  }

 private:
  friend class Executor;
  Executor* executor_ LOCKSTEP_GUARDED_BY(mutex_);                   // null once it has ended
  const bool in_inference_mode_ = c10::InferenceMode::is_enabled();  // of the poster, whose tensors may be such
  std::function<void()> run_;
  const Clock::time_point deadline_;
  Mutex mutex_;
  Condition changed_;
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
};

std::shared_ptr<WorkState> Executor::post(std::function<void()> run, Clock::time_point deadline) {
  auto task = std::make_shared<Task>(*this, std::move(run), deadline);
  {
    const Lock lock(mutex_);
    queue_.push_back(task);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_one();
  return task;
}

bool Executor::idle() const {
  const Lock lock(mutex_);
  return queue_.empty() && running_ == 0;
}

bool Executor::claim(Task& task) {
  const Lock lock(mutex_);
  if (mode_ == Mode::in_order && (running_ > 0 || queue_.empty() || queue_.front().get() != &task)) return false;
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [&](const auto& other) { return other.get() == &task; });
  if (found == queue_.end()) return false;
  queue_.erase(found);
  ++running_;
  return true;
}

void Executor::run(Task& task) {
  std::exception_ptr error;
  try {
    const c10::InferenceMode mode(task.in_inference_mode_);
    task.run_();
  } catch (...) {
    error = std::current_exception();
  }
  {
    const Lock lock(mutex_);
    --running_;
    changed_.notify_all();  // under the lock: the executor may be gone right after it
  }
  finish(task, error);
}

void Executor::finish(Task& task, std::exception_ptr error) {
  {
    const Lock lock(task.mutex_);
    task.ended_ = true;
    task.error_ = std::move(error);
    task.executor_ = nullptr;
    task.run_ = {};  // lets go of the tensors
  }
  task.changed_.notify_all();
}

void Executor::work() {
  for (;;) {
    std::shared_ptr<Task> task;
    {
      Lock lock(mutex_);
      while (!closing_ && (queue_.empty() || (mode_ == Mode::in_order && running_ != 0))) changed_.wait(lock);
      if (closing_) return;
      task = queue_.front();
      queue_.pop_front();
      ++running_;
    }
    run(*task);
  }
}

Executor::~Executor() {
  std::deque<std::shared_ptr<Task>> dropped;
  {
    const Lock lock(mutex_);
    closing_ = true;
    dropped.swap(queue_);
  }
  changed_.notify_all();
  const auto error =
      std::make_exception_ptr(CommError(-1, "wait", 0, "wait: the group was destroyed before this operation began"));
  for (const auto& task : dropped) finish(*task, error);
  if (thread_.joinable()) thread_.join();
  Lock lock(mutex_);
  while (running_ != 0) changed_.wait(lock);
}

}  // namespace lockstep::comm
