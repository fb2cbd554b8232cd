// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/placement.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Placement, SplitsEvenlyAndFindsTheProcessOfAReplica) {
  const auto placement = Placement::even(8, 3);
  EXPECT_EQ(placement, Placement({3, 3, 2}));
  EXPECT_EQ(placement.block(2), (Interval{6, 8}));
  EXPECT_EQ(placement.process_of(5), 1);
  EXPECT_EQ(Placement({0, 2, 0, 1}).process_of(2), 3);
  EXPECT_EQ(Placement::even(2, 4), Placement({1, 1, 0, 0}));
}

TEST(Placement, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Placement({1, -1}), Error);
  EXPECT_THROW(Placement::even(4, 0), Error);
  EXPECT_THROW(Placement({2}).process_of(2), Error);
}

}  // namespace
}  // namespace lockstep
