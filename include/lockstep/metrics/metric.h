// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

namespace lockstep::metrics {

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
  /// The figure of nothing.
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

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

}  // namespace lockstep::metrics
