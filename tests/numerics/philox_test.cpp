// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/philox.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace lockstep {
namespace {

using testing::ElementsAre;

// The three vectors that the authors of Philox publish for 4x32-10.
TEST(Philox, GivesTheAuthorsKnownAnswers) {
  constexpr uint64_t ones = ~uint64_t{0};
  EXPECT_THAT(philox4x32_10(0, 0, 0).word, ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(philox4x32_10(ones, ones, ones).word, ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(philox4x32_10(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e).word,
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, AgreesWithTheEngineInLibtorch) {
  for (uint64_t stream : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
    at::Philox4_32 engine(/*seed=*/99, /*subsequence=*/stream, /*offset=*/5);
    for (uint64_t index = 5; index < 9; ++index) {
      const PhiloxBlock block = RandomKey{99, stream}.block(index);
      for (uint32_t word : block.word) EXPECT_EQ(word, engine());
    }
  }
}

TEST(Philox, IsAConstantExpression) {
  static_assert(philox4x32_10(0, 0, 0).word[0] == 0x6627e8d5u);
  static_assert(RandomKey{1, 2}.fold(3) == RandomKey{1, 2}.fold(3));
}

// The expected key comes from a second implementation, in Python.
TEST(RandomKey, FoldGivesTheSameKeyOnEveryPlatform) {
  EXPECT_EQ((RandomKey{1234, 5678}.fold(9)), (RandomKey{0x34f3977a497d650a, 0x95a54e7bdaf2e863}));
}

TEST(RandomKey, FoldGivesAKeyOfItsOwnForEveryPathOfNumbers) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  const RandomKey root{0, 0};
  for (uint64_t step = 0; step < 20; ++step)
    for (uint64_t replica = 0; replica < 20; ++replica) {
      const RandomKey key = root.fold(step).fold(replica);
      keys.emplace(key.seed, key.stream);
    }
  EXPECT_EQ(keys.size(), 400u);
  EXPECT_FALSE(root.fold(1).fold(2) == root.fold(2).fold(1));
}

}  // namespace
}  // namespace lockstep
