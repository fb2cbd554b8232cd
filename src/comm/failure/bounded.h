// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace lockstep::comm {

/// What `work` returns or throws, if it ends within `patience`. It runs on a thread of its own, for calls that may hang
/// with a peer; one that does is left behind, so all that it uses must be its own.
template <class Work>
auto within(std::chrono::milliseconds patience, Work work) -> std::optional<decltype(work())> {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(patience) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace lockstep::comm
