// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/schedule.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

void expect_values(const Schedule& schedule, const std::vector<std::pair<int64_t, double>>& values) {
  for (const auto& [step, factor] : values) EXPECT_NEAR(schedule(step), factor, 1e-12) << "step " << step;
}

TEST(Schedule, FollowsItsFormula) {
  expect_values(constant(), {{0, 1}, {1000, 1}});
  expect_values(step_decay(10, 0.5), {{0, 1}, {9, 1}, {10, 0.5}, {20, 0.25}});
  expect_values(multi_step({3, 5}, 0.1), {{0, 1}, {2, 1}, {3, 0.1}, {4, 0.1}, {5, 0.01}, {90, 0.01}});
  expect_values(cosine(100, 0.2), {{0, 1}, {50, 0.6}, {100, 0.2}, {200, 0.2}});
  expect_values(polynomial(10, 2), {{0, 1}, {5, 0.25}, {10, 0}, {11, 0}});
  expect_values(warm_up(4, cosine(10)), {{0, 0}, {1, 0.25}, {4, 1}, {9, 0.5}, {14, 0}});
}

TEST(Schedule, ScalesWithTheBatch) {
  EXPECT_EQ(scale_with(4, ScaleRule::linear), 4);
  EXPECT_EQ(scale_with(4, ScaleRule::square_root), 2);
  EXPECT_EQ(scale_with(4, ScaleRule::none), 1);
  EXPECT_THROW(scale_with(0, ScaleRule::linear), Error);
}

TEST(Schedule, RejectsWhatMakesNoSense) {
  EXPECT_THROW(cosine(0), Error);
  EXPECT_THROW(multi_step({5, 3}), Error);
  EXPECT_THROW(warm_up(3, nullptr), Error);
}

}  // namespace
}  // namespace lockstep::parallel
