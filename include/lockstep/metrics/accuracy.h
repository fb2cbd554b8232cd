// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/metrics/metric.h"

namespace lockstep::metrics {

/// The part of examples whose target is among the k classes with the largest scores; k = 1 is the accuracy. Scores
/// [n, classes] of any floating dtype and device, targets [n] int64 (or with more dimensions, [n, classes, ...] and
/// [n, ...]); those with target `ignore` don't count. Where scores are equal the lower class is before the higher one,
/// so the figure is the same on every device; a NaN is the lowest of all. State: [right, examples].
class TopKAccuracy : public Metric {
 public:
  explicit TopKAccuracy(int64_t k, int64_t ignore = -100);
  void add(const at::Tensor& scores, const at::Tensor& targets);
  double value() const override;
  int64_t k() const { return k_; }
  int64_t ignore() const { return ignore_; }
  int64_t right() const { return static_cast<int64_t>(data()[0]); }
  int64_t examples() const { return static_cast<int64_t>(data()[1]); }

 private:
  int64_t k_;
  int64_t ignore_;
};

/// The part of examples whose target has the largest score.
class Accuracy : public TopKAccuracy {
 public:
  Accuracy() : TopKAccuracy(1) {}
};

}  // namespace lockstep::metrics
