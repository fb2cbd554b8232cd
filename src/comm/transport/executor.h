// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "comm/transport/transport.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/comm/work.h"

namespace lockstep::comm {

/// Runs tasks that block. A thread of its own takes them one by one; a thread that waits for a task runs it itself
/// where nobody has begun, so a blocking call needs no switch between threads.
class Executor {
 public:
  enum class Mode : uint8_t {
    in_order,  // one at a time, in the order they were posted: collectives
    any_order  // a waiting thread may run its task before earlier ones: messages, which are under way already
  };

  explicit Executor(Mode mode) : mode_(mode) {}
  /// Tasks under way must be about to fail (Transport::close); tasks not begun are dropped and fail.
  ~Executor();

  /// `run` blocks until `deadline` at the longest, and throws what wait is to throw.
  std::shared_ptr<WorkState> post(std::function<void()> run, Clock::time_point deadline);

  /// Every task has ended.
  bool idle() const;

 private:
  class Task;
  void work();
  bool claim(Task& task);
  static void finish(Task& task, std::exception_ptr error);
  void run(Task& task);

  const Mode mode_;
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<Task>> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  int running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_ LOCKSTEP_GUARDED_BY(mutex_);  // started with the first task
};

}  // namespace lockstep::comm
