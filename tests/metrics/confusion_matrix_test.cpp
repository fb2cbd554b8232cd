// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/confusion_matrix.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "random_scores.h"

namespace lockstep::metrics {
namespace {

TEST(ConfusionMatrix, HasARowForEachTargetAndAColumnForEachPrediction) {
  const at::Tensor guesses = random_labels(300, 4, 5), targets = random_labels(300, 4, 6);
  targets.narrow(0, 0, 20).fill_(255);
  ConfusionMatrix matrix(4, 255);
  matrix.add(guesses, targets);
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 4; ++column)
      EXPECT_EQ(matrix.matrix()[row][column].item<int64_t>(),
                ((targets == row) & (guesses == column)).sum().item<int64_t>());
  EXPECT_DOUBLE_EQ(matrix.value(), (targets == guesses).sum().item<double>() / 280);
  ConfusionMatrix of_scores(4, 255);
  of_scores.add(at::one_hot(guesses, 4).to(at::kFloat), targets);
  EXPECT_TRUE(of_scores.matrix().equal(matrix.matrix()));
}

TEST(MeanIoU, IsTheMeanOfIntersectionOverUnionOfTheClassesThatOccur) {
  MeanIoU metric(4, 255);
  metric.add(at::tensor({0, 0, 1, 1, 2, 0}, at::kLong), at::tensor({0, 1, 1, 1, 0, 255}, at::kLong));
  const auto classes = metric.of_classes();
  EXPECT_DOUBLE_EQ(classes[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(classes[1], 2.0 / 3);
  EXPECT_DOUBLE_EQ(classes[2], 0);
  EXPECT_TRUE(std::isnan(classes[3]));
  EXPECT_DOUBLE_EQ(metric.value(), 1.0 / 3);
}

}  // namespace
}  // namespace lockstep::metrics
