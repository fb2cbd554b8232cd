// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/device_choice.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using detail::Inventory;
using detail::runs_on;

std::string chosen(int local_rank, int local_size, const Inventory& inventory) {
  return detail::usual_devices(local_rank, local_size, inventory);
}

TEST(DeviceChoice, EachProcessOfAHostTakesTheGpuOfItsNumber) {
  const Inventory four{16, 4, true};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(chosen(rank, 4, four), "cuda:" + std::to_string(rank));
  EXPECT_EQ(chosen(5, 8, four), "cuda:1") << "more processes than GPUs count round";
  EXPECT_EQ(chosen(0, 1, four), "cuda:0");
}

TEST(DeviceChoice, AProcessThatIsShownOneGpuTakesIt) {
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(chosen(rank, 8, {4, 1, true}), "cuda:0");
}

TEST(DeviceChoice, WithoutGpusProcessesShareTheCores) {
  EXPECT_EQ(chosen(0, 1, {16, 0, true}), "cpu:16");
  EXPECT_EQ(chosen(3, 4, {16, 0, false}), "cpu:4");
  EXPECT_EQ(chosen(3, 4, {2, 0, false}), "cpu:1");
}

TEST(DeviceChoice, CodeRunsOnItsGenerationAndPtxOnAllLaterOnes) {
  const char* shipped = "80-real,90-real,100";
  EXPECT_TRUE(runs_on(shipped, 8, 0));
  EXPECT_TRUE(runs_on(shipped, 8, 6));
  EXPECT_TRUE(runs_on(shipped, 9, 0));
  EXPECT_TRUE(runs_on(shipped, 10, 0));
  EXPECT_TRUE(runs_on(shipped, 12, 0)) << "PTX of sm_100";
  EXPECT_FALSE(runs_on(shipped, 7, 5));
  EXPECT_FALSE(runs_on("90-real", 8, 0));
  EXPECT_FALSE(runs_on("90-real", 10, 0));
  EXPECT_TRUE(runs_on("90-virtual", 10, 0));
  EXPECT_TRUE(runs_on("86", 8, 9));
  EXPECT_FALSE(runs_on("86-real", 8, 0));
  EXPECT_TRUE(runs_on("90a", 9, 0));
  EXPECT_FALSE(runs_on("90a", 10, 0)) << "what is for one architecture has PTX that is for it alone";
  EXPECT_FALSE(runs_on("", 9, 0));
  EXPECT_TRUE(runs_on("native", 7, 5));
}

TEST(DeviceChoice, AGpuThatIsNotThereHasNoName) {
  EXPECT_EQ(gpu_identity(1000), "");
  EXPECT_EQ(gpu_identity(-1), "");
}

}  // namespace
}  // namespace lockstep
