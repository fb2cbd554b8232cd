// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace lockstep::comm {

/// How a backend runs one posted operation. Internal to comm; users hold a Work.
class WorkState {
 public:
  virtual ~WorkState() = default;
  /// Whether the operation has ended, well or not. Never blocks.
  virtual bool done() = 0;
  /// Waits until the operation has ended or `until` has come, and helps with it where that is possible. True when it
  /// has ended; throws CommError when it failed. The operation's own timeout ends it too.
  virtual bool wait_until(std::chrono::steady_clock::time_point until) = 0;
};

/// An operation on its way. The group keeps its tensors alive until it has ended; nobody may read the outputs or write
/// the inputs before `wait()` has returned. Copies share the operation; wait from one thread at a time. A Work that is
/// dropped still runs, as part of the others' operation, but its outcome is never known: always wait.
class [[nodiscard]] Work {
 public:
  /// Nothing to wait for.
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state, std::function<void()> finish = {});

  /// Blocks until the outputs are there (for CUDA tensors: until the current stream is ordered after them). Throws
  /// CommError when a peer failed or the operation's timeout passed, with the same error each time it is called.
  void wait();
  /// Waits no longer than this. False: not ended yet, the operation goes on.
  bool wait_for(std::chrono::milliseconds time);
  /// Whether wait() would return or throw at once.
  bool done() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::comm
