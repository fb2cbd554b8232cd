// SPDX-License-Identifier: Apache-2.0
#include "metrics/scores.h"

#include <ATen/ops/movedim.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::metrics {

namespace {

at::Tensor on_cpu(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.detach().to(at::kCPU, dtype).contiguous();
}

// A total order of scores: NaN is below all.
bool is_above(double a, double b) {
  return std::isnan(b) ? !std::isnan(a) : a > b;
}

}  // namespace

at::Tensor labels_of(const char* operation, const char* what, const at::Tensor& labels) {
  require(labels.defined() && c10::isIntegralType(labels.scalar_type(), /*includeBool=*/true), operation, what, " are ",
          labels.defined() ? text("of ", labels.scalar_type()) : text("undefined"), ", expected whole numbers");
  return on_cpu(labels, at::kLong);
}

at::Tensor rows_of_scores(const char* operation, const at::Tensor& scores, const at::Tensor& targets) {
  require(scores.defined() && scores.is_floating_point() && scores.dim() >= 2 && scores.dim() == targets.dim() + 1 &&
              scores.size(0) == targets.size(0) && scores.sizes().slice(2) == targets.sizes().slice(1),
          operation, "scores are ", scores.defined() ? text(scores.scalar_type(), " ", scores.sizes()) : "undefined",
          " and targets ", targets.sizes(), ", expected floating [n, classes, ...] and [n, ...]");
  return on_cpu(scores.detach().movedim(1, -1), at::kDouble).view({-1, scores.size(1)});
}

int64_t best_of(std::span<const double> scores) {
  size_t best = 0;
  for (size_t c = 1; c < scores.size(); ++c)
    if (is_above(scores[c], scores[best])) best = c;
  return static_cast<int64_t>(best);
}

int64_t rank_of(std::span<const double> scores, int64_t target) {
  int64_t rank = 0;
  for (int64_t c = 0; c < static_cast<int64_t>(scores.size()); ++c)
    rank += is_above(scores[c], scores[target]) || (c < target && !is_above(scores[target], scores[c]));
  return rank;
}

void check_class(const char* operation, const char* what, int64_t number, int64_t classes) {
  require(0 <= number && number < classes, operation, what, " ", number, ", expected a class in [0, ", classes, ")");
}

}  // namespace lockstep::metrics
