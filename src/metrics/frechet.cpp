// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/frechet.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/matmul.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/pinned.h"
#include "metrics/cpu/scatter_kernel.h"

namespace lockstep::metrics {
namespace {

int64_t triangle_size(int64_t width) {
  return width * (width + 1) / 2;
}

/// Adds the moments (count, mean, upper triangle of the scatter) of one set to another's.
void merge_moments(double* into, const double* from, int64_t width) {
  const double a = into[0], b = from[0];
  if (b == 0) return;
  if (a == 0) {  // exactly the other's: an empty share changes no bit
    std::copy_n(from, 1 + width + triangle_size(width), into);
    return;
  }
  const double *other_mean = from + 1, *other_scatter = other_mean + width;
  double *mean = into + 1, *scatter = mean + width;
  std::vector<double> delta(width);
  for (int64_t i = 0; i < width; ++i) delta[i] = other_mean[i] - mean[i];
  const double weight = a * b / (a + b);
  for (int64_t i = 0; i < width; ++i) {
    const double scaled = delta[i] * weight;
    for (int64_t j = i; j < width; ++j) *scatter++ += *other_scatter++ + scaled * delta[j];
  }
  for (int64_t i = 0; i < width; ++i) mean[i] += delta[i] * (b / (a + b));
  into[0] = a + b;
}

/// The square root of a symmetric matrix without negative eigenvalues; what rounding made negative counts as 0.
at::Tensor symmetric_root(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return at::matmul(vectors * values.clamp_min(0).sqrt(), vectors.t());
}

}  // namespace

FeatureMoments::FeatureMoments(int64_t features)
    : Metric(1 + std::max<int64_t>(features, 0) + triangle_size(std::max<int64_t>(features, 0))), features_(features) {
  require(features >= 1, "FeatureMoments", "got ", features, " features, expected at least 1");
}

void FeatureMoments::add(const at::Tensor& features) {
  require(features.defined() && features.is_floating_point() && features.dim() == 2 && features.size(1) == features_,
          "FeatureMoments::add", "features are ",
          features.defined() ? text(features.scalar_type(), " ", features.sizes()) : "undefined",
          ", expected floating [n, ", features_, "]");
  const int64_t count = features.size(0), width = features_;
  if (count == 0) return;
  const at::Tensor given = features.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* rows = given.const_data_ptr<double>();
  std::vector<double> batch(1 + width + triangle_size(width)), centered(count * width);
  batch[0] = static_cast<double>(count);
  double* mean = batch.data() + 1;
  for (int64_t n = 0; n < count; ++n)
    for (int64_t i = 0; i < width; ++i) mean[i] += rows[n * width + i];
  for (int64_t i = 0; i < width; ++i) mean[i] /= static_cast<double>(count);
  for (int64_t n = 0; n < count; ++n)
    for (int64_t i = 0; i < width; ++i) centered[n * width + i] = rows[n * width + i] - mean[i];
  LOCKSTEP_SELECT_ISA(add_scatter)(centered.data(), count, width, mean + width);
  merge_moments(data(), batch.data(), width);
}

void FeatureMoments::merge_into(double* into, const double* from) const {
  merge_moments(into, from, features_);
}

at::Tensor FeatureMoments::mean() const {
  return state().narrow(0, 1, features_).clone();  // not a part of a large tensor
}

at::Tensor FeatureMoments::covariance() const {
  at::Tensor full = at::empty({features_, features_}, at::kDouble);
  auto* out = full.mutable_data_ptr<double>();
  const double* scatter = data() + 1 + features_;
  const double divisor = data()[0] - 1;
  for (int64_t i = 0; i < features_; ++i)
    for (int64_t j = i; j < features_; ++j) out[i * features_ + j] = out[j * features_ + i] = *scatter++ / divisor;
  return full;
}

double FeatureMoments::value() const {
  if (count() < 2) return kUnknown;
  double trace = 0;
  const double* scatter = data() + 1 + features_;
  for (int64_t i = 0; i < features_; scatter += features_ - i, ++i) trace += *scatter;
  return trace / (data()[0] - 1);
}

double frechet_distance(const FeatureMoments& a, const FeatureMoments& b) {
  require(a.features() == b.features(), "frechet_distance", "got ", a.features(), " and ", b.features(),
          " features, expected as many of both");
  require(a.count() >= 2 && b.count() >= 2, "frechet_distance", "got moments of ", a.count(), " and ", b.count(),
          " examples, expected at least 2 of each");
  const c10::InferenceMode no_graph;
  const ReplicaNumerics one_thread;  // LAPACK's bits depend on the number of threads
  const at::Tensor first = a.covariance(), second = b.covariance(), root = symmetric_root(first);
  const at::Tensor product = at::matmul(at::matmul(root, second), root);
  const at::Tensor roots = at::linalg_eigvalsh((product + product.t()) / 2).clamp_min(0).sqrt();
  const at::Tensor apart = a.mean() - b.mean();
  // Equal distributions are 0 apart, whatever rounding says.
  const at::Tensor distance = (apart * apart).sum() + first.trace() + second.trace() - 2 * roots.sum();
  return std::max(0.0, distance.item<double>());
}

}  // namespace lockstep::metrics
