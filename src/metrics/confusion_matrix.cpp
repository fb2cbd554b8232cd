// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/confusion_matrix.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "metrics/scores.h"

namespace lockstep::metrics {

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
  return all > 0 ? right / all : kUnknown;
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
    figures.push_back(united > 0 ? data()[c * classes_ + c] / united : kUnknown);
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
  return occurring > 0 ? sum / static_cast<double>(occurring) : kUnknown;
}

}  // namespace lockstep::metrics
