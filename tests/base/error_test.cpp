// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"

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

TEST(Error, TextKnowsNoLocale) {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  const std::string number = text(1500);
  std::locale::global(before);
  EXPECT_EQ(number, "1500");
}

TEST(Error, ACheckThatHoldsDoesNothing) {
  EXPECT_NO_THROW(require(true, "split", "unused"));
}

TEST(ErrorDeathTest, ABrokenInvariantNamesItsConditionAndStops) {
  EXPECT_DEATH(LOCKSTEP_ASSERT(1 + 1 == 3), "broken invariant '1 \\+ 1 == 3'");
}

}  // namespace
}  // namespace lockstep
