// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/metrics/metric.h"

namespace lockstep::metrics {

/// Count, mean and scatter of feature vectors: what a Frechet distance compares. State: [1 + d + d * (d + 1) / 2]: the
/// count, the mean, the upper triangle of the sum of (x - mean)(x - mean)^T, merged by the formula of Chan, Golub and
/// LeVeque. The bits follow from the batches that were added and their order, not from the number of threads. The value
/// is the trace of the covariance.
class FeatureMoments : public Metric {
 public:
  explicit FeatureMoments(int64_t features);
  /// [n, d] of any floating dtype and device; n = 0 is legal.
  void add(const at::Tensor& features);
  double value() const override;

  int64_t features() const { return features_; }
  int64_t count() const { return static_cast<int64_t>(data()[0]); }
  /// [d], and [d, d] divided by count - 1, as numpy.cov does; float64.
  at::Tensor mean() const;
  at::Tensor covariance() const;

 protected:
  void merge_into(double* into, const double* from) const override;

 private:
  int64_t features_;
};

/// The squared Frechet distance of two normal distributions with these moments, as the FID of images is of a layer's
/// features: |m1 - m2|^2 + trace(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2), in float64 by symmetric eigen decompositions.
/// Throws Error where features differ or a side has fewer than two examples.
double frechet_distance(const FeatureMoments& a, const FeatureMoments& b);

}  // namespace lockstep::metrics
