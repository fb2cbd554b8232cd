// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/metric.h"

#include <ATen/ops/movedim.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/numerics/tree.h"

namespace lockstep::data {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

at::Tensor on_cpu(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.detach().to(at::kCPU, dtype).contiguous();
}

at::Tensor labels_of(const char* operation, const char* what, const at::Tensor& labels) {
  require(labels.defined() && c10::isIntegralType(labels.scalar_type(), /*includeBool=*/true), operation, what, " are ",
          labels.defined() ? text("of ", labels.scalar_type()) : text("undefined"), ", expected whole numbers");
  return on_cpu(labels, at::kLong);
}

/// Scores as float64 [examples, classes], one row a target.
at::Tensor rows_of_scores(const char* operation, const at::Tensor& scores, const at::Tensor& targets) {
  require(scores.defined() && scores.is_floating_point() && scores.dim() >= 2 && scores.dim() == targets.dim() + 1 &&
              scores.size(0) == targets.size(0) && scores.sizes().slice(2) == targets.sizes().slice(1),
          operation, "scores are ", scores.defined() ? text(scores.scalar_type(), " ", scores.sizes()) : "undefined",
          " and targets ", targets.sizes(), ", expected floating [n, classes, ...] and [n, ...]");
  return on_cpu(scores.detach().movedim(1, -1), at::kDouble).view({-1, scores.size(1)});
}

// A total order of scores: NaN is below all.
bool is_above(double a, double b) {
  return std::isnan(b) ? !std::isnan(a) : a > b;
}

int64_t best_of(std::span<const double> scores) {
  size_t best = 0;
  for (size_t c = 1; c < scores.size(); ++c)
    if (is_above(scores[c], scores[best])) best = c;
  return static_cast<int64_t>(best);
}

/// How many classes come before the target.
int64_t rank_of(std::span<const double> scores, int64_t target) {
  int64_t rank = 0;
  for (int64_t c = 0; c < static_cast<int64_t>(scores.size()); ++c)
    rank += is_above(scores[c], scores[target]) || (c < target && !is_above(scores[target], scores[c]));
  return rank;
}

void check_class(const char* operation, const char* what, int64_t number, int64_t classes) {
  require(0 <= number && number < classes, operation, what, " ", number, ", expected a class in [0, ", classes, ")");
}

}  // namespace

Metric::Metric(int64_t size) : state_(at::zeros({size}, at::kDouble)) {}

Metric& Metric::operator=(const Metric& other) {
  state_ = other.state();
  return *this;
}

void Metric::clear() {
  std::fill_n(data(), state_.numel(), 0.0);
}

void Metric::merge_into(double* into, const double* from) const {
  for (int64_t i = 0; i < state_.numel(); ++i) into[i] += from[i];
}

void Metric::merge(const at::Tensor& states) {
  const int64_t n = state_.numel();
  require(states.defined() && states.scalar_type() == at::kDouble && states.numel() > 0 && states.dim() <= 2 &&
              states.dim() >= 1 && states.size(-1) == n,
          "Metric::merge", "got states ",
          states.defined() ? text(states.scalar_type(), " ", states.sizes()) : "that are undefined",
          ", expected Double [replicas, ", n, "]");
  const at::Tensor given = on_cpu(states, at::kDouble);
  const auto* rows = given.const_data_ptr<double>();
  const int64_t replicas = given.numel() / n;
  auto merge = [&](std::vector<double>& left, const std::vector<double>& right) {
    merge_into(left.data(), right.data());
  };
  const auto leaf = [&](int64_t r) { return std::vector<double>(rows + r * n, rows + (r + 1) * n); };
  std::ranges::copy(merge_as_tree(replicas, leaf, merge), data());
}

void Mean::add(double value, double weight) {
  require(weight >= 0, "Mean::add", "weight is ", weight, ", expected 0 or more");
  if (weight == 0) return;  // the loss of an empty share is NaN
  data()[0] += weight * value;
  data()[1] += weight;
}

double Mean::value() const {
  return data()[1] > 0 ? data()[0] / data()[1] : kNothing;
}

TopK::TopK(int64_t k, int64_t ignore) : Metric(2), k_(k), ignore_(ignore) {
  require(k >= 1, "TopK", "k is ", k, ", expected at least 1");
}

void TopK::add(const at::Tensor& scores, const at::Tensor& targets) {
  const at::Tensor labels = labels_of("TopK::add", "targets", targets);
  const at::Tensor rows = rows_of_scores("TopK::add", scores, labels);
  const int64_t classes = rows.size(1);
  const auto* label = labels.const_data_ptr<int64_t>();
  int64_t right = 0, examples = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == ignore_) continue;
    check_class("TopK::add", "got the target", label[i], classes);
    const std::span row(rows.const_data_ptr<double>() + i * classes, static_cast<size_t>(classes));
    right += rank_of(row, label[i]) < k_;
    ++examples;
  }
  data()[0] += static_cast<double>(right);
  data()[1] += static_cast<double>(examples);
}

double TopK::value() const {
  return data()[1] > 0 ? data()[0] / data()[1] : kNothing;
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, int64_t ignore)
    : Metric(std::max<int64_t>(classes, 0) * std::max<int64_t>(classes, 0)), classes_(classes), ignore_(ignore) {
  require(classes >= 1 && classes <= 1 << 15, "ConfusionMatrix", "got ", classes, " classes, expected 1 to 32768");
}

void ConfusionMatrix::add(const at::Tensor& predictions, const at::Tensor& targets) {
  const char* operation = "ConfusionMatrix::add";
  const at::Tensor labels = labels_of(operation, "targets", targets);
  const bool scored = predictions.defined() && predictions.is_floating_point();
  const at::Tensor guesses =
      scored ? rows_of_scores(operation, predictions, labels) : labels_of(operation, "predictions", predictions);
  require(scored || guesses.sizes() == labels.sizes(), operation, "predictions are ", guesses.sizes(), " and targets ",
          labels.sizes(), ", expected the same shape");
  require(!scored || guesses.size(1) == classes_, operation, "got scores for ", scored ? guesses.size(1) : 0,
          " classes, expected ", classes_);
  const auto* label = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == ignore_) continue;
    check_class(operation, "got the target", label[i], classes_);
    const int64_t guess =
        scored ? best_of({guesses.const_data_ptr<double>() + i * classes_, static_cast<size_t>(classes_)})
               : guesses.const_data_ptr<int64_t>()[i];
    check_class(operation, "got the prediction", guess, classes_);
    data()[label[i] * classes_ + guess] += 1;
  }
}

double ConfusionMatrix::value() const {
  double right = 0, all = 0;
  for (int64_t row = 0; row < classes_; ++row)
    for (int64_t column = 0; column < classes_; ++column) {
      const double count = data()[row * classes_ + column];
      all += count;
      if (row == column) right += count;
    }
  return all > 0 ? right / all : kNothing;
}

at::Tensor ConfusionMatrix::matrix() const {
  return state().to(at::kLong).view({classes_, classes_});
}

std::vector<double> MeanIoU::of_classes() const {
  std::vector<double> figures;
  for (int64_t c = 0; c < classes_; ++c) {
    double united = -data()[c * classes_ + c];
    for (int64_t other = 0; other < classes_; ++other)
      united += data()[c * classes_ + other] + data()[other * classes_ + c];
    figures.push_back(united > 0 ? data()[c * classes_ + c] / united : kNothing);
  }
  return figures;
}

double MeanIoU::value() const {
  double sum = 0;
  int64_t occurring = 0;
  for (const double figure : of_classes())
    if (!std::isnan(figure)) {
      sum += figure;
      ++occurring;
    }
  return occurring > 0 ? sum / static_cast<double>(occurring) : kNothing;
}

}  // namespace lockstep::data
