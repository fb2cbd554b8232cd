// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/metric.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/tree.h"

namespace lockstep::metrics {

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
  const at::Tensor given = states.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* rows = given.const_data_ptr<double>();
  const int64_t replicas = given.numel() / n;
  auto merge = [&](std::vector<double>& left, const std::vector<double>& right) {
    merge_into(left.data(), right.data());
  };
  const auto leaf = [&](int64_t r) { return std::vector<double>(rows + r * n, rows + (r + 1) * n); };
  std::ranges::copy(merge_as_tree(replicas, leaf, merge), data());
}

}  // namespace lockstep::metrics
