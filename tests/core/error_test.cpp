// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, NamesTheOperationWhatWasGotAndWhatWasExpected) {
  try {
    require(false, "split", "parts is ", 0, ", expected at least ", 1);
    FAIL() << "require(false) returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "split: parts is 0, expected at least 1");
  }
}

TEST(Error, ACheckThatHoldsDoesNothing) {
  EXPECT_NO_THROW(require(true, "split", "unused"));
}

TEST(ErrorDeathTest, ABrokenInvariantNamesItsConditionAndStops) {
  EXPECT_DEATH(LOCKSTEP_ASSERT(1 + 1 == 3), "broken invariant '1 \\+ 1 == 3'");
}

}  // namespace
}  // namespace lockstep
