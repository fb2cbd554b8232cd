// SPDX-License-Identifier: Apache-2.0
// What notices a lost process where the transport does not. No GPU is needed: the ranks are threads and a store.
#include "comm/failure/peer_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/failure/bounded.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr PeerWatch::Times kQuick{.every = milliseconds(10), .silent = milliseconds(300)};

/// Whether all of these have come to know that `rank` is lost, within some seconds.
bool all_know(const std::vector<std::unique_ptr<PeerWatch>>& watches, int rank) {
  const auto until = Clock::now() + std::chrono::seconds(20);
  for (const auto& watch : watches)
    while (watch && watch->lost() != rank) {
      if (Clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
  return true;
}

TEST(PeerWatch, EveryRankComesToKnowWhoIsGone) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<PeerWatch>> watches;
  for (int r = 0; r < 4; ++r) watches.push_back(std::make_unique<PeerWatch>(store, r, 4, kQuick));
  std::this_thread::sleep_for(2 * kQuick.silent);
  for (const auto& watch : watches) EXPECT_EQ(watch->lost(), std::nullopt) << "all are there";
  watches[2].reset();  // as if it had been killed: it says nothing any more
  EXPECT_TRUE(all_know(watches, 2));
}

TEST(PeerWatch, ARankThatNeverCameIsLost) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<PeerWatch>> watches;
  watches.push_back(std::make_unique<PeerWatch>(store, 0, 2, kQuick));
  EXPECT_TRUE(all_know(watches, 1));
}

TEST(PeerWatch, WhatARankAnnouncesReachesAllAndTheFirstStands) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(announced_failure(*store), std::nullopt);
  announce_failure(*store, 3);
  announce_failure(*store, 1);
  EXPECT_EQ(announced_failure(*store), 3);
}

TEST(PeerWatch, ARankAloneLosesNobody) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const PeerWatch watch(store, 0, 1, {.every = milliseconds(5), .silent = milliseconds(20)});
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(watch.lost(), std::nullopt);
}

TEST(Bounded, ACallThatHangsIsLeftBehind) {
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  const auto start = Clock::now();
  EXPECT_EQ(within(milliseconds(50),
                   [hangs] {
                     while (*hangs) std::this_thread::sleep_for(milliseconds(5));
                     return 1;
                   }),
            std::nullopt);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  *hangs = false;
  EXPECT_EQ(within(milliseconds(20000), [] { return 2; }), 2);
  EXPECT_THROW(within(milliseconds(20000), []() -> int { throw std::runtime_error("refused"); }), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::comm
