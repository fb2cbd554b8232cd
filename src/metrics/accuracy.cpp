// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/accuracy.h"

#include <span>

#include "lockstep/base/error.h"
#include "metrics/scores.h"

namespace lockstep::metrics {

TopKAccuracy::TopKAccuracy(int64_t k, int64_t ignore) : Metric(2), k_(k), ignore_(ignore) {
  require(k >= 1, "TopKAccuracy", "k is ", k, ", expected at least 1");
}

void TopKAccuracy::add(const at::Tensor& scores, const at::Tensor& targets) {
  const at::Tensor labels = labels_of("TopKAccuracy::add", "targets", targets);
  const at::Tensor rows = rows_of_scores("TopKAccuracy::add", scores, labels);
  const int64_t classes = rows.size(1);
  const auto* label = labels.const_data_ptr<int64_t>();
  int64_t right = 0, examples = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == ignore_) continue;
    check_class("TopKAccuracy::add", "got the target", label[i], classes);
    const std::span row(rows.const_data_ptr<double>() + i * classes, static_cast<size_t>(classes));
    right += rank_of(row, label[i]) < k_;
    ++examples;
  }
  data()[0] += static_cast<double>(right);
  data()[1] += static_cast<double>(examples);
}

double TopKAccuracy::value() const {
  return data()[1] > 0 ? data()[0] / data()[1] : kUnknown;
}

}  // namespace lockstep::metrics
