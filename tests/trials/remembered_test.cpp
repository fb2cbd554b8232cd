// SPDX-License-Identifier: Apache-2.0
// Profiles in the user's cache folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "lockstep/trials/profile.h"
#include "support/temporary_folder.h"

namespace lockstep::trials {
namespace {

class Remembered : public testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1); }
  void TearDown() override { unsetenv("XDG_CACHE_HOME"); }

  static run::Config usual() { return {.data = "synthetic:1x8x8:4:256", .batch = 64, .replicas = 8}; }
  static std::filesystem::path file_with(const std::function<void(run::Config&)>& change) {
    run::Config config = usual();
    change(config);
    return remembered_profile_file(config);
  }
  static Profile profile() {
    return {.cores = 4,
            .model = "lenet",
            .batch = 64,
            .replicas = 8,
            .cost = {.stages = {{.name = "a", .forward = 0.02}}, .gradients = {{.numel = 7}}},
            .slowdown = {.passes = {1, 1.2}, .memory = {1, 1.3}, .thread_passes = {1, 1.4}, .thread_memory = {1, 1.5}},
            .loopback = parallel::LinkCost{.latency = 1e-5},
            .seconds = 0.5,
            .thread_spread = 0.1};
  }

  const test::TemporaryFolder cache_;
};

TEST_F(Remembered, HasOneFileWhateverTakesNoTime) {
  const auto file = remembered_profile_file(usual());
  EXPECT_EQ(file.parent_path(), cache_ / "lockstep/profiles");
  EXPECT_EQ(file_with([](auto& c) { c.epochs = 3; }), file);
  EXPECT_EQ(file_with([](auto& c) { c.steps = 3; }), file);
  EXPECT_EQ(file_with([](auto& c) { c.seed = 3; }), file);
  EXPECT_EQ(file_with([](auto& c) { c.out = "elsewhere"; }), file);
  EXPECT_EQ(file_with([](auto& c) { c.schedule = "cosine"; }), file);
  EXPECT_EQ(file_with([](auto& c) { c.devices = "cpu:2", c.split = "p2"; }), file);
  // As a trainer works it out.
  EXPECT_EQ(file_with([](auto& c) { c.lr = 0.1, c.momentum = 0, c.weight_decay = 0, c.workers = 1; }), file);
  EXPECT_EQ(file_with([](auto& c) { c.augment = "normalize:0.5:0.25,flip"; }),
            file_with([](auto& c) { c.augment = "normalize,flip"; }));
}

TEST_F(Remembered, HasAnotherFileWhereStepsTakeAnotherTime) {
  const auto file = remembered_profile_file(usual());
  EXPECT_NE(file_with([](auto& c) { c.model = "mlp"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.set = {"width=0.5"}; }), file);
  EXPECT_NE(file_with([](auto& c) { c.data = "synthetic:1x9x9:4:256"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.batch = 32; }), file);
  EXPECT_NE(file_with([](auto& c) { c.replicas = 4; }), file);
  EXPECT_NE(file_with([](auto& c) { c.slices = 2; }), file);
  EXPECT_NE(file_with([](auto& c) { c.amp = "bf16"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.batch_norm = "sync"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.optimizer = "adam"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.momentum = 0.9; }), file);
  EXPECT_NE(file_with([](auto& c) { c.augment = "flip"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.memory_format = "contiguous"; }), file);
  EXPECT_NE(file_with([](auto& c) { c.workers = 0; }), file);
}

TEST_F(Remembered, GivesBackWhatWasWritten) {
  EXPECT_FALSE(remembered_profile(usual()));
  remember_profile(usual(), profile());
  const auto found = remembered_profile(usual());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->seconds, 0.5);
  EXPECT_EQ(found->cost.gradients[0].numel, 7);
  const auto folder = remembered_profile_file(usual()).parent_path();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);  // and nothing half-written
}

TEST_F(Remembered, IsNothingWhereItCannotBeRead) {
  remember_profile(usual(), profile());
  for (const char* text : {"", "{\"format\": 1}", "[1, 2]", "{\"format\": 3, \"processor\": \"a\"}"}) {
    std::ofstream(remembered_profile_file(usual())) << text;
    EXPECT_FALSE(remembered_profile(usual())) << text;
  }
}

TEST_F(Remembered, IsNothingWhereNothingCanBeWritten) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);
  remember_profile(usual(), profile());
  EXPECT_FALSE(remembered_profile(usual()));
}

TEST_F(Remembered, KeepsWhatWasNotMeasuredAgain) {
  remember_profile(usual(), profile());
  Profile newer = profile();
  newer.seconds = 0.4;
  newer.slowdown = {};
  newer.loopback.reset();
  EXPECT_TRUE(newer.knows(1, 1));
  EXPECT_FALSE(newer.knows(1, 2));
  EXPECT_FALSE(newer.knows(2, 1));
  remember_profile(usual(), newer);
  const auto found = remembered_profile(usual());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->seconds, 0.4);
  EXPECT_EQ(found->slowdown.thread_passes[1], 1.4);
  EXPECT_EQ(found->thread_spread, 0.1);
  EXPECT_TRUE(found->knows(2, 2));
}

}  // namespace
}  // namespace lockstep::trials
