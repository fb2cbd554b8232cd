// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/metrics/metric.h"

namespace lockstep::metrics {

/// How often an example of one class (row) was taken for another (column). Predictions and targets are whole numbers in
/// [0, classes), of the same shape; or scores [n, classes, ...], of which the largest counts (see TopKAccuracy).
/// Targets `ignore` don't count; others out of range are an Error. State: [classes * classes], row by row. The value is
/// the accuracy.
class ConfusionMatrix : public Metric {
 public:
  explicit ConfusionMatrix(int64_t classes, int64_t ignore = -100);
  void add(const at::Tensor& predictions, const at::Tensor& targets);
  double value() const override;
  int64_t classes() const { return classes_; }
  int64_t ignore() const { return ignore_; }
  /// [classes, classes] int64.
  at::Tensor matrix() const;

 protected:
  int64_t classes_;
  int64_t ignore_;
};

/// The mean over classes of intersection / union, of those that occur in predictions or targets at all. Made and merged
/// as the confusion matrix that it is computed from.
class MeanIoU : public ConfusionMatrix {
 public:
  using ConfusionMatrix::ConfusionMatrix;
  double value() const override;
  /// One figure a class, NaN where it does not occur.
  std::vector<double> of_classes() const;
};

}  // namespace lockstep::metrics
