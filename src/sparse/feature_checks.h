// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::sparse {

/// "Float [100, 32] on cpu", "undefined".
std::string describe(const at::Tensor& tensor);

/// float16 or bfloat16: what is summed up in float32.
inline bool is_low_precision(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

/// Throws Error unless x is a matrix of floating values with `rows` rows.
void check_features(const char* operation, const at::Tensor& x, int64_t rows);

/// Throws Error unless `tensor` has the type and the device of x.
void check_same_kind(const char* operation, const char* name, const at::Tensor& tensor, const at::Tensor& x);

}  // namespace lockstep::sparse
