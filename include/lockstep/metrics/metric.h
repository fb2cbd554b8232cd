// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::data {

/// A figure over examples that replicas see parts of. Each replica has its own and adds what it sees; then
///
///     accuracy.merge(me.all_gather(accuracy.state()));
///
/// makes it that of all of them, the same bits on each and in every placement: states are merged in the order of the
/// canonical tree over replicas. A metric that has seen nothing merges without a trace. One thread at a time uses it; a
/// copy counts on by itself.
class Metric {
 public:
  virtual ~Metric() = default;

  /// [n] float64 on the CPU, n fixed by how the metric was made. Counts are whole numbers, exact to 2^53.
  at::Tensor state() const { return state_.clone(); }
  /// Becomes what the states [R, n] give together; also [n], that one. Throws Error for another size or dtype.
  void merge(const at::Tensor& states);
  void clear();

  /// The figure; NaN where nothing was seen.
  virtual double value() const = 0;

 protected:
  explicit Metric(int64_t size);
  Metric(const Metric& other) : state_(other.state()) {}
  Metric(Metric&&) noexcept = default;
  Metric& operator=(const Metric& other);
  Metric& operator=(Metric&&) noexcept = default;

  double* data() { return state_.mutable_data_ptr<double>(); }
  const double* data() const { return state_.const_data_ptr<double>(); }
  /// Adds `from` [n] to `into` [n]; the sum of both unless a metric says otherwise.
  virtual void merge_into(double* into, const double* from) const;

 private:
  at::Tensor state_;
};

/// A weighted mean, such as of the losses of batches with their counts. State: [sum of weight * value, sum of weights].
class Mean : public Metric {
 public:
  Mean() : Metric(2) {}
  /// A weight of 0 adds nothing, whatever the value is. Throws Error for a negative weight.
  void add(double value, double weight = 1);
  double value() const override;
  double weight() const { return data()[1]; }
};

/// The part of examples whose target is among the k classes with the largest scores; k = 1 is the accuracy. Scores
/// [n, classes] of any floating dtype and device, targets [n] int64 (or with more dimensions, [n, classes, ...] and
/// [n, ...]); those with target `ignore` don't count. Where scores are equal the lower class is before the higher one,
/// so the figure is the same on every device; a NaN is the lowest of all. State: [right, examples].
class TopK : public Metric {
 public:
  explicit TopK(int64_t k, int64_t ignore = -100);
  void add(const at::Tensor& scores, const at::Tensor& targets);
  double value() const override;
  int64_t right() const { return static_cast<int64_t>(data()[0]); }
  int64_t examples() const { return static_cast<int64_t>(data()[1]); }

 private:
  int64_t k_;
  int64_t ignore_;
};

class Accuracy : public TopK {
 public:
  Accuracy() : TopK(1) {}
};

/// How often an example of one class (row) was taken for another (column). Predictions and targets are whole numbers in
/// [0, classes), of the same shape; or scores [n, classes, ...], of which the largest counts (see TopK). Targets
/// `ignore` don't count; others out of range are an Error. State: [classes * classes], row by row. The value is the
/// accuracy.
class ConfusionMatrix : public Metric {
 public:
  explicit ConfusionMatrix(int64_t classes, int64_t ignore = -100);
  void add(const at::Tensor& predictions, const at::Tensor& targets);
  double value() const override;
  int64_t classes() const { return classes_; }
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

}  // namespace lockstep::data
