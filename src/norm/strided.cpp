// SPDX-License-Identifier: Apache-2.0
#include "norm/strided.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

namespace lockstep::norm {
namespace {

/// a * b in float64, [C] each; an undefined b is 1.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!b.defined()) return a;
  const bool plain = a.is_cpu() && b.is_cpu() && a.is_contiguous() && b.is_contiguous();
  if (!plain || a.scalar_type() != at::kDouble || (b.scalar_type() != at::kFloat && b.scalar_type() != at::kDouble))
    return a * b;
  // A loop: mixing dtypes costs ATen several operations.
  at::Tensor out = at::empty_like(a);
  const double* left = a.const_data_ptr<double>();
  double* to = out.mutable_data_ptr<double>();
  const auto multiply = [&](const auto* right) {
    for (int64_t c = 0; c < a.numel(); ++c) to[c] = left[c] * static_cast<double>(right[c]);
  };
  if (b.scalar_type() == at::kFloat)
    multiply(b.const_data_ptr<float>());
  else
    multiply(b.const_data_ptr<double>());
  return out;
}

at::Tensor moments(const at::Tensor& x) {
  return x.is_cpu() ? cpu::batch_moments(x) : cuda::batch_moments(x);
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias) {
  if (!x.is_cpu()) return cuda::batch_normalize(x, mean, inverse_deviation, weight, bias);
  return cpu::batch_normalize(x, mean, product(inverse_deviation, weight),
                              bias.defined() ? bias : at::zeros_like(mean));
}

at::Tensor gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                         const at::Tensor& inverse_deviation) {
  if (!x.is_cpu()) return cuda::batch_gradient_sums(g, x, mean, inverse_deviation);
  at::Tensor sums = cpu::batch_gradient_sums(g, x, mean);
  sums[1].mul_(inverse_deviation);
  return sums;
}

at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& inverse_deviation, const at::Tensor& weight, const at::Tensor& means) {
  if (!x.is_cpu()) return cuda::batch_input_gradient(g, x, mean, inverse_deviation, weight, means);
  return cpu::batch_input_gradient(g, x, mean, product(inverse_deviation, weight), means[0],
                                   product(means[1], inverse_deviation));
}

}  // namespace

Operations strided_operations() {
  return {.moments = moments, .normalize = normalize, .gradient_sums = gradient_sums, .input_gradient = input_gradient};
}

}  // namespace lockstep::norm
