// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"
#include "support/devices.h"

namespace lockstep {
namespace {

std::vector<std::string> keys(const Fingerprint& fingerprint) {
  std::vector<std::string> result;
  for (const auto& [key, value] : fingerprint.items()) {
    EXPECT_FALSE(value.empty()) << key;
    result.push_back(key);
  }
  return result;
}

TEST(Fingerprint, OfTheCpuNamesVersionsAndInstructionSets) {
  const auto fingerprint = Fingerprint::of({Device::Kind::cpu, 0});
  EXPECT_THAT(keys(fingerprint), testing::ElementsAre("lockstep", "torch", "mkl", "onednn", "device", "isa",
                                                      "torch_isa", "mkl_mode", "cpu_vendor"));
  EXPECT_THAT(fingerprint.to_string(), testing::StartsWith(text("lockstep ", version(), ", torch 2.")));
}

TEST(Fingerprint, IsTheSameForEverySlotOfTheCpuAndFollowsTheLevel) {
  const auto fingerprint = Fingerprint::of({Device::Kind::cpu, 0});
  EXPECT_EQ(fingerprint, Fingerprint::of({Device::Kind::cpu, 5}));
  const ScopedCpuLevel level(CpuLevel::baseline);
  const auto baseline = Fingerprint::of({Device::Kind::cpu, 0});
  EXPECT_EQ(baseline == fingerprint, best_cpu_level() == CpuLevel::baseline);
}

TEST(Fingerprint, SurvivesBeingSavedAsItems) {
  const auto fingerprint = Fingerprint::of({Device::Kind::cpu, 0});
  EXPECT_EQ(Fingerprint(fingerprint.items()), fingerprint);
  EXPECT_EQ(fingerprint.difference(Fingerprint(fingerprint.items())), "");
}

TEST(Fingerprint, ADifferenceNamesEveryItemThatDiffers) {
  const Fingerprint here({{"torch", "2.11.0"}, {"mkl", "2024"}, {"isa", "avx2"}});
  const Fingerprint there({{"torch", "2.12.0"}, {"mkl", "2024"}, {"gpu", "H100"}});
  EXPECT_FALSE(here == there);
  EXPECT_EQ(here.difference(there),
            "torch is 2.11.0 here and 2.12.0 there; isa is avx2 here and missing there; gpu is missing here and H100 "
            "there");
}

TEST(Fingerprint, OfACudaDeviceNamesItsArchitecture) {
  if (cuda_devices().empty()) GTEST_SKIP() << "no CUDA device here";
  EXPECT_THAT(keys(Fingerprint::of({Device::Kind::cuda, 0})),
              testing::ElementsAre("lockstep", "torch", "mkl", "onednn", "device", "gpu", "cuda", "cudnn"));
}

TEST(Fingerprint, OfACudaDeviceThatIsNotThereIsAnError) {
  EXPECT_THROW(Fingerprint::of({Device::Kind::cuda, 1000}), Error);
}

}  // namespace
}  // namespace lockstep
