// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/numerics/random.h"

// What the tests of metrics measure, and how they compare it.
namespace lockstep::metrics {

inline at::Tensor random_scores(const std::vector<int64_t>& sizes, uint64_t seed) {
  return normal_(at::empty(sizes, at::kDouble), RandomKey{seed});
}

inline at::Tensor random_labels(int64_t count, int64_t classes, uint64_t seed) {
  return (uniform_(at::empty({count}, at::kDouble), RandomKey{seed}) * classes).floor().to(at::kLong);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace lockstep::metrics
