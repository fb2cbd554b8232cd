// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/contribution.h"

#include <ATen/ops/stack.h>

namespace lockstep::parallel {

void Contribution::add(size_t number, const at::Tensor& value, double factor) {
  if (value.is_cpu())
    numbers[number] += factor * value.item<double>();
  else
    later.push_back({number, value.detach(), factor});
}

void read_later(std::span<Contribution> contributions) {
  std::vector<at::Tensor> values;
  for (const Contribution& contribution : contributions)
    for (const auto& later : contribution.later) values.push_back(later.value.reshape({}).to(at::kDouble));
  if (values.empty()) return;
  const at::Tensor read = at::stack(values).cpu();
  const double* next = read.const_data_ptr<double>();
  for (Contribution& contribution : contributions) {
    for (const auto& later : contribution.later) contribution.numbers[later.number] += later.factor * *next++;
    contribution.later.clear();
  }
}

}  // namespace lockstep::parallel
