// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

namespace lockstep::comm {

/// Looks again and again, on a thread of its own, until this is destroyed or looking throws.
class Periodic {
 public:
  /// What `look` uses must be its own: it may outlive this.
  Periodic(std::chrono::milliseconds every, std::function<void()> look);
  /// Blocks no longer than a second: a store may hang with the process that serves it, and the thread with the store.
  ~Periodic();
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::future<void> ended_;
  std::thread thread_;
};

}  // namespace lockstep::comm
