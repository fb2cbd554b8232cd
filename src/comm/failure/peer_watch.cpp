// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/peer_watch.h"

#include <atomic>
#include <string>
#include <utility>

#include "comm/meeting/store_text.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kFirst = "failed/first";

std::string sign_of(int rank) {
  return text("alive/", rank);
}

/// Empty where nobody has set it.
std::string text_so_far(c10d::Store& store, const std::string& key) {
  return store.check({key}) ? text_at(store, key) : "";
}

}  // namespace

void announce_failure(c10d::Store& store, int suspect) {
  store.compareSet(kFirst, "", std::to_string(suspect));
}

std::optional<int> announced_failure(c10d::Store& store) {
  const std::string suspect = text_so_far(store, kFirst);
  return suspect.empty() ? std::nullopt : std::optional(std::stoi(suspect));
}

struct PeerWatch::State {
  const c10::intrusive_ptr<c10d::Store> store;
  const int rank, next;
  const Times times;
  std::atomic<int> lost{-1};
  std::string last_sign{};  // of the next rank
  Clock::time_point last_change = Clock::now();
  int64_t beat = 0;

  void look() {
    store->set(sign_of(rank), std::to_string(beat++));
    const std::string sign = text_so_far(*store, sign_of(next));
    const auto now = Clock::now();
    if (sign != last_sign) {
      last_sign = sign;
      last_change = now;
    } else if (next != rank && now - last_change > times.silent) {
      announce_failure(*store, next);
    }
    if (const auto suspect = announced_failure(*store)) lost.store(*suspect, std::memory_order_relaxed);
  }
};

// Where the store is gone, looking ends, and deadlines are left.
PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Times times)
    : state_(new State{.store = std::move(store), .rank = rank, .next = (rank + 1) % size, .times = times}),
      looks_(times.every, [state = state_] { state->look(); }) {}

std::optional<int> PeerWatch::lost() const {
  const int lost = state_->lost.load(std::memory_order_relaxed);
  return lost < 0 ? std::nullopt : std::optional(lost);
}

}  // namespace lockstep::comm
