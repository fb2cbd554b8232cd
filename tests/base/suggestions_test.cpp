// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/suggestions.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(DidYouMean, FindsTheNearestNameOrNone) {
  const std::vector<std::string> names{"run", "info", "selftest"};
  EXPECT_EQ(did_you_mean("rnu", names), " (did you mean 'run'?)");
  EXPECT_EQ(did_you_mean("selftst", names), " (did you mean 'selftest'?)");
  EXPECT_EQ(did_you_mean("inof", names), " (did you mean 'info'?)");
  EXPECT_EQ(did_you_mean("train", names), "");
  EXPECT_EQ(did_you_mean("", names), "");
}

TEST(OneOf, JoinsNamesAsASentenceDoes) {
  EXPECT_EQ(one_of({}), "");
  EXPECT_EQ(one_of({"sgd"}), "sgd");
  EXPECT_EQ(one_of({"sgd", "adam"}), "sgd or adam");
  EXPECT_EQ(one_of({"sgd", "adam", "lars"}), "sgd, adam or lars");
}

}  // namespace
}  // namespace lockstep
