// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/metrics/metric.h"

namespace lockstep::metrics {

/// A weighted mean, such as of the losses of batches with their counts. State: [sum of weight * value, sum of weights].
class Mean : public Metric {
 public:
  Mean() : Metric(2) {}
  /// A weight of 0 adds nothing, whatever the value is. Throws Error for a negative weight.
  void add(double value, double weight = 1);
  double value() const override;
  double weight() const { return data()[1]; }
};

}  // namespace lockstep::metrics
