// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/error_of.h"

namespace lockstep::metrics {
namespace {

TEST(Mean, IsWeightedAndPassesOverWeightZero) {
  Mean mean;
  EXPECT_TRUE(std::isnan(mean.value()));
  mean.add(2, 3);
  mean.add(std::numeric_limits<double>::quiet_NaN(), 0);
  mean.add(10);
  EXPECT_EQ(mean.value(), 4);
  EXPECT_EQ(mean.weight(), 4);
  EXPECT_NE(test::error_of([&] { mean.add(1, -1); }), "no error");
}

}  // namespace
}  // namespace lockstep::metrics
