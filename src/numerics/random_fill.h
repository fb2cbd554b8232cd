// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "lockstep/base/error.h"
#include "numerics/random_draws.h"

namespace lockstep::detail {

// Fill a contiguous tensor. Throw Error when the draw gives no numbers of its dtype.
void fill_cpu(const at::Tensor& tensor, const Draw& draw, uint64_t offset);
void fill_cuda(const at::Tensor& tensor, const Draw& draw, uint64_t offset);

template <class... T>
struct Dtypes {
  // Calls body(T{}) for the one T that the dtype stands for.
  template <class Body>
  static void visit(const char* operation, at::ScalarType dtype, const Body& body) {
    const bool known = ((c10::CppTypeToScalarType<T>::value == dtype && (body(T{}), true)) || ...);
    if (known) return;
    std::string expected;
    ((expected += text(expected.empty() ? "" : ", ", c10::getDtypeNames(c10::CppTypeToScalarType<T>::value).first)),
     ...);
    fail(operation, "tensor has dtype ", c10::getDtypeNames(dtype).first, ", expected ", expected);
  }
};

using RealDtypes = Dtypes<float, double, c10::Half, c10::BFloat16>;
using AnyDtype = Dtypes<float, double, c10::Half, c10::BFloat16, bool, uint8_t, int8_t, int16_t, int32_t, int64_t>;

template <class Body>
void visit_dtype(const UniformDraw&, at::ScalarType dtype, const Body& body) {
  RealDtypes::visit("uniform_", dtype, body);
}
template <class Body>
void visit_dtype(const NormalDraw&, at::ScalarType dtype, const Body& body) {
  RealDtypes::visit("normal_", dtype, body);
}
template <class Body>
void visit_dtype(const BernoulliDraw&, at::ScalarType dtype, const Body& body) {
  AnyDtype::visit("bernoulli_", dtype, body);
}
template <class Body>
void visit_dtype(const PermutationDraw&, at::ScalarType dtype, const Body& body) {
  Dtypes<int64_t>::visit("permutation_", dtype, body);
}

}  // namespace lockstep::detail
