// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/instruction_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/instruction_set_kernel.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string message_of(const char* request, CpuLevel best) {
  try {
    detail::requested_cpu_level(request, best);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CpuLevel, NamesAndLevelsAreInverse) {
  for (CpuLevel level : {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::avx512_bf16})
    EXPECT_EQ(parse_cpu_level("test", to_string(level)), level);
}

TEST(CpuLevel, AvailableLevelsRunFromBaselineToTheBest) {
  const std::vector<CpuLevel> levels = available_cpu_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), CpuLevel::baseline);
  EXPECT_EQ(levels.back(), best_cpu_level());
  EXPECT_LE(cpu_level(), best_cpu_level());
}

TEST(CpuLevel, TheEnvironmentLowersTheLevel) {
  EXPECT_EQ(detail::requested_cpu_level(nullptr, CpuLevel::avx2), CpuLevel::avx2);
  EXPECT_EQ(detail::requested_cpu_level("", CpuLevel::avx2), CpuLevel::avx2);
  EXPECT_EQ(detail::requested_cpu_level("baseline", CpuLevel::avx512), CpuLevel::baseline);
  EXPECT_EQ(detail::requested_cpu_level("avx2", CpuLevel::avx2), CpuLevel::avx2);
}

TEST(CpuLevel, AnUnknownLevelInTheEnvironmentIsAnError) {
  EXPECT_EQ(message_of("sse9", CpuLevel::avx2),
            "LOCKSTEP_CPU_LEVEL: got 'sse9', expected baseline, avx2, avx512 or avx512_bf16");
}

TEST(CpuLevel, AskingForMoreThanTheCpuHasIsAnErrorThatSaysWhatItHas) {
  EXPECT_EQ(message_of("avx512", CpuLevel::avx2),
            "LOCKSTEP_CPU_LEVEL: got avx512, expected at most avx2, the best of this CPU");
  if (best_cpu_level() < CpuLevel::avx512) {
    EXPECT_THROW(ScopedCpuLevel{CpuLevel::avx512}, Error);
  }
}

TEST(CpuLevel, AScopeSetsTheLevelOfEveryThreadAndPutsItBack) {
  const CpuLevel before = cpu_level();
  {
    ScopedCpuLevel scope(CpuLevel::baseline);
    EXPECT_EQ(cpu_level(), CpuLevel::baseline);
    std::thread([] { EXPECT_EQ(cpu_level(), CpuLevel::baseline); }).join();
  }
  EXPECT_EQ(cpu_level(), before);
}

TEST(CpuLevel, SelectRunsTheCopyThatWasCompiledForTheLevel) {
  for (CpuLevel level : available_cpu_levels()) {
    ScopedCpuLevel scope(level);
    EXPECT_EQ(LOCKSTEP_SELECT_ISA(compiled_for)(), std::min(level, CpuLevel::avx512)) << to_string(level);
    std::vector<float> into{1, 2, 3}, from{10, 20, 30};
    LOCKSTEP_SELECT_ISA(add)(into.data(), from.data(), 3);
    EXPECT_EQ(into, (std::vector<float>{11, 22, 33})) << to_string(level);
  }
}

}  // namespace
}  // namespace lockstep
