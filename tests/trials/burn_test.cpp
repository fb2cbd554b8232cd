// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/burn.h"

#include <gtest/gtest.h>

#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::trials {
namespace {

// More cores than a small machine has: the same one may do the work of several.
BurnOptions options(int cores) {
  BurnOptions out{.seconds = 0.02};
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  out.cores.assign(cores, first);
  return out;
}

void flip(void* bytes, size_t at) {
  static_cast<uint8_t*>(bytes)[at] ^= 1;
}

TEST(Burn, FindsNothingWrongWithSoundCores) {
  const BurnReport report = burn({.seconds = 0.1});
  EXPECT_TRUE(report.is_good());
  EXPECT_GE(report.cores, 1);
  EXPECT_GE(report.rounds, 1);
}

TEST(Burn, NamesTheCoreWhoseBitsAreOthers) {
  BurnOptions wanted = options(3);
  std::atomic<int> results = 0;
  wanted.disturb = [&](int, int64_t round, void* bytes, size_t size) {
    // Of three that do the same work one has a bit flipped, once.
    if (round == 0 && size == 192 * 192 * 4 && results.fetch_add(1) == 1) flip(bytes, 1000);
  };
  const BurnReport report = burn(wanted);
  ASSERT_EQ(report.wrong.size(), 1);
  EXPECT_EQ(report.wrong[0].core, wanted.cores[0]);
  EXPECT_EQ(report.wrong[0].rounds, 1);
  EXPECT_EQ(report.wrong[0].first_round, 0);
  EXPECT_EQ(report.wrong[0].work, "a product of matrices");
  EXPECT_FALSE(report.wrong[0].host.empty());
  EXPECT_EQ(report.undecided, 0);
}

TEST(Burn, TwoCoresThatDisagreeCantTellWhichIsRight) {
  BurnOptions wanted = options(2);
  std::atomic<int> results = 0;
  wanted.disturb = [&](int, int64_t round, void* bytes, size_t size) {
    if (round == 0 && size == (1 << 15) * 4 && results.fetch_add(1) == 0) flip(bytes, size - 1);
  };
  const BurnReport report = burn(wanted);
  EXPECT_TRUE(report.wrong.empty());
  EXPECT_EQ(report.undecided, 1);
  EXPECT_FALSE(report.is_good());
}

TEST(Burn, SeveralProcessesVoteTogether) {
  auto groups = comm::local_groups(3);
  std::vector<BurnReport> reports(3);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      BurnOptions wanted = options(1);
      if (rank == 2) wanted.disturb = [](int, int64_t, void* bytes, size_t) { flip(bytes, 8); };
      reports[rank] = burn(wanted, groups[rank]);
    });
  threads.clear();
  for (const BurnReport& report : reports) {
    EXPECT_EQ(report.cores, 3);
    ASSERT_EQ(report.wrong.size(), 1);
    EXPECT_EQ(report.wrong[0].rank, 2);
    EXPECT_EQ(report.wrong[0].rounds, report.rounds);
  }
}

TEST(Burn, RefusesMoreProcessesThanCores) {
  BurnOptions wanted = options(1);
  wanted.local_rank = 1;
  wanted.local_size = 2;
  EXPECT_THROW(burn(wanted), Error);
}

}  // namespace
}  // namespace lockstep::trials
