// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/peer_watch.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kFirst = "failed/first";

std::string sign_of(int rank) {
  return text("alive/", rank);
}

std::string read(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return {};
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void announce_failure(c10d::Store& store, int suspect) {
  store.compareSet(kFirst, "", std::to_string(suspect));
}

std::optional<int> announced_failure(c10d::Store& store) {
  const std::string suspect = read(store, kFirst);
  return suspect.empty() ? std::nullopt : std::optional(std::stoi(suspect));
}

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Times times)
    : store_(std::move(store)),
      rank_(rank),
      next_((rank + 1) % size),
      times_(times),
      last_change_(Clock::now()),
      thread_([this] { watch(); }) {}

PeerWatch::~PeerWatch() {
  {
    const Lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<int> PeerWatch::lost() const {
  const int lost = lost_.load(std::memory_order_relaxed);
  return lost < 0 ? std::nullopt : std::optional(lost);
}

void PeerWatch::watch() {
  for (int64_t beat = 0;; ++beat) {
    try {
      look(beat);
    } catch (const std::exception&) {  // the store is gone; deadlines are left
      return;
    }
    const auto until = Clock::now() + times_.every;
    Lock lock(mutex_);
    while (!ends_ && Clock::now() < until) changed_.wait_until(lock, until);
    if (ends_) return;
  }
}

void PeerWatch::look(int64_t beat) {
  store_->set(sign_of(rank_), std::to_string(beat));
  const std::string sign = read(*store_, sign_of(next_));
  const auto now = Clock::now();
  if (sign != last_sign_) {
    last_sign_ = sign;
    last_change_ = now;
  } else if (next_ != rank_ && now - last_change_ > times_.silent) {
    announce_failure(*store_, next_);
  }
  if (const auto suspect = announced_failure(*store_)) lost_.store(*suspect, std::memory_order_relaxed);
}

}  // namespace lockstep::comm
