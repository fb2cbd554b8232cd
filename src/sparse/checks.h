// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::sparse {

/// "Float [100, 32] on cpu", "undefined".
std::string describe(const at::Tensor& tensor);

/// Throws Error unless x is a matrix of floating values with `rows` rows.
void check_features(const char* operation, const at::Tensor& x, int64_t rows);

/// Throws Error unless `tensor` has the type and the device of x.
void check_same_kind(const char* operation, const char* name, const at::Tensor& tensor, const at::Tensor& x);

}  // namespace lockstep::sparse
