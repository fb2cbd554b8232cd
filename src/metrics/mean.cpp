// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/mean.h"

#include "lockstep/base/error.h"

namespace lockstep::metrics {

void Mean::add(double value, double weight) {
  require(weight >= 0, "Mean::add", "weight is ", weight, ", expected 0 or more");
  if (weight == 0) return;  // the loss of an empty share is NaN
  data()[0] += weight * value;
  data()[1] += weight;
}

double Mean::value() const {
  return data()[1] > 0 ? data()[0] / data()[1] : kUnknown;
}

}  // namespace lockstep::metrics
