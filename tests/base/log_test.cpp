// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;

// Everything the body logs at or above `level`, one entry a message.
template <class Body>
std::vector<std::string> logged(LogLevel level, Body body) {
  std::vector<std::string> messages;
  const LogLevel before = log_level();
  set_log_level(level);
  {
    ScopedLogSink sink([&](LogLevel, std::string_view lines) { messages.emplace_back(lines); });
    body();
  }
  set_log_level(before);
  return messages;
}

TEST(Log, ALevelLetsThroughItselfAndWhatIsMoreUrgent) {
  const auto all = [] {
    log_error("e", 1);
    log_warning("w", 2);
    log_info("i", 3);
    log_debug("d", 4);
  };
  EXPECT_THAT(logged(LogLevel::error, all), ElementsAre("error: e1\n"));
  EXPECT_THAT(logged(LogLevel::info, all), ElementsAre("error: e1\n", "warning: w2\n", "info: i3\n"));
  EXPECT_EQ(logged(LogLevel::debug, all).size(), 4u);
}

TEST(Log, AnUnknownLevelIsAnErrorThatListsTheLevels) {
  try {
    parse_log_level("LOCKSTEP_LOG", "loud");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "LOCKSTEP_LOG: got 'loud', expected error, warning, info or debug");
  }
  EXPECT_EQ(parse_log_level("test", "debug"), LogLevel::debug);
}

TEST(Log, AMessageCarriesTheRankOfItsThreadElseOfItsProcess) {
  EXPECT_THAT(
      logged(LogLevel::info,
             [] {
               set_log_rank(2);
               log_info("process");
               {
                 ScopedLogRank rank(5);
                 log_info("thread");
                 std::thread([] { log_info("other"); }).join();
               }
               set_log_rank(std::nullopt);
               log_info("none");
             }),
      ElementsAre("[rank 2] info: process\n", "[rank 5] info: thread\n", "[rank 2] info: other\n", "info: none\n"));
}

TEST(Log, EveryLineOfALongMessageCarriesThePrefix) {
  EXPECT_THAT(logged(LogLevel::info,
                     [] {
                       ScopedLogRank rank(0);
                       log_info("a\nb\n");
                       log_info("");
                     }),
              ElementsAre("[rank 0] info: a\n[rank 0] info: b\n", "[rank 0] info: \n"));
}

TEST(Log, LinesOfManyThreadsOnStandardErrorDoNotMix) {
  constexpr int threads = 4, lines = 200;
  const std::string filling(100, 'x');
  testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> pool;
    for (int rank = 0; rank < threads; ++rank)
      pool.emplace_back([rank, &filling] {
        ScopedLogRank scope(rank);
        for (int i = 0; i < lines; ++i) log_warning(filling);
      });
  }
  std::istringstream captured(testing::internal::GetCapturedStderr());
  std::vector<int> count(threads);
  for (std::string line; std::getline(captured, line);) {
    const int rank = line.at(6) - '0';
    ASSERT_EQ(line, text("[rank ", rank, "] warning: ", filling));
    ++count.at(rank);
  }
  EXPECT_THAT(count, testing::Each(lines));
}

}  // namespace
}  // namespace lockstep
