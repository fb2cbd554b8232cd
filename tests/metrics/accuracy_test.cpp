// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/accuracy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "random_scores.h"

namespace lockstep::metrics {
namespace {

TEST(Accuracy, CountsExamplesWhoseTargetHasTheHighestScore) {
  const at::Tensor scores = at::tensor({1.0, 2.0, 3.0, 5.0, 5.0, 1.0, 0.0, 0.0, 0.0, 9.0, 1.0, 1.0}).view({4, 3});
  Accuracy accuracy;
  accuracy.add(scores, at::tensor({2, 1, 0, -100}, at::kLong));
  EXPECT_EQ(accuracy.right(), 2) << "of equal scores the lowest class wins";
  EXPECT_EQ(accuracy.examples(), 3);
  accuracy.add(at::empty({0, 3}), at::empty({0}, at::kLong));
  EXPECT_DOUBLE_EQ(accuracy.value(), 2.0 / 3);
}

TEST(Accuracy, ANanIsTheLowestScore) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Accuracy accuracy;
  accuracy.add(at::tensor({nan, -1.0, nan, nan}).view({2, 2}), at::tensor({1, 1}, at::kLong));
  EXPECT_EQ(accuracy.right(), 1);
}

TEST(TopKAccuracy, IsWhetherSortingPutsTheTargetAmongTheFirst) {
  const at::Tensor scores = random_scores({200, 7}, 1), targets = random_labels(200, 7, 2);
  const at::Tensor sorted = scores.argsort(1, /*descending=*/true);
  for (int64_t k = 1; k <= 8; ++k) {
    const int64_t width = std::min<int64_t>(k, 7);
    const auto expected = (sorted.narrow(1, 0, width) == targets.unsqueeze(1)).any(1).sum().item<int64_t>();
    TopKAccuracy metric(k);
    metric.add(scores.to(at::kFloat), targets);
    EXPECT_EQ(metric.right(), expected) << k;
  }
}

TEST(TopKAccuracy, TakesOneTargetAPixel) {
  const at::Tensor scores = random_scores({2, 3, 4, 5}, 3);
  const at::Tensor targets = random_labels(40, 3, 4).view({2, 4, 5});
  Accuracy accuracy;
  accuracy.add(scores, targets);
  EXPECT_EQ(accuracy.right(), (scores.argmax(1) == targets).sum().item<int64_t>());
  EXPECT_EQ(accuracy.examples(), 40);
}

}  // namespace
}  // namespace lockstep::metrics
