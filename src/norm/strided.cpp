// SPDX-License-Identifier: Apache-2.0
#include "norm/strided.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

namespace lockstep::norm {
namespace {

/// Of every axis but the channels'.
std::vector<int64_t> batch_axes(const at::Tensor& x) {
  std::vector<int64_t> axes{0};
  for (int64_t axis = 2; axis < x.dim(); ++axis) axes.push_back(axis);
  return axes;
}

/// [C] -> [1, C, 1, ...], to be broadcast over x.
at::Tensor per_channel(const at::Tensor& statistic, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return statistic.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).view(sizes);
}

at::Tensor computable(const at::Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

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

}  // namespace

namespace any {

at::Tensor batch_moments(const at::Tensor& x) {
  const int64_t channels = x.size(1), count = channels > 0 ? x.numel() / channels : 0;
  const at::Tensor given = x.to(at::kDouble);
  const at::Tensor mean = given.sum(batch_axes(x)) / static_cast<double>(std::max<int64_t>(1, count));
  const at::Tensor squares = (given - mean.view(per_channel(mean, x).sizes())).square().sum(batch_axes(x));
  return at::stack({at::full_like(mean, static_cast<double>(count)), mean, squares});
}

at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& bias) {
  const at::Tensor y = (computable(x) - per_channel(mean, x)) * per_channel(scale, x) + per_channel(bias, x);
  return y.to(x.scalar_type());
}

at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean) {
  const at::Tensor gradient = g.to(at::kDouble);
  const at::Tensor apart = x.to(at::kDouble) - mean.view(per_channel(mean, x).sizes());
  return at::stack({gradient.sum(batch_axes(x)), (gradient * apart).sum(batch_axes(x))});
}

at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& scale, const at::Tensor& part, const at::Tensor& slope) {
  const at::Tensor apart = computable(x) - per_channel(mean, x);
  const at::Tensor dx = per_channel(scale, x) * (computable(g) - per_channel(part, x) - apart * per_channel(slope, x));
  return dx.to(x.scalar_type());
}

}  // namespace any

namespace {

at::Tensor moments(const at::Tensor& x) {
  return x.is_cpu() ? cpu::batch_moments(x) : any::batch_moments(x);
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor scale = product(inverse_deviation, weight);
  const at::Tensor shift = bias.defined() ? bias : at::zeros_like(mean);
  return x.is_cpu() ? cpu::batch_normalize(x, mean, scale, shift) : any::batch_normalize(x, mean, scale, shift);
}

at::Tensor gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                         const at::Tensor& inverse_deviation) {
  at::Tensor sums = x.is_cpu() ? cpu::batch_gradient_sums(g, x, mean) : any::batch_gradient_sums(g, x, mean);
  sums[1].mul_(inverse_deviation);
  return sums;
}

at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& inverse_deviation, const at::Tensor& weight, const at::Tensor& means) {
  const at::Tensor scale = product(inverse_deviation, weight);
  const at::Tensor slope = product(means[1], inverse_deviation);
  return x.is_cpu() ? cpu::batch_input_gradient(g, x, mean, scale, means[0], slope)
                    : any::batch_input_gradient(g, x, mean, scale, means[0], slope);
}

}  // namespace

Operations strided_operations() {
  return {.moments = moments, .normalize = normalize, .gradient_sums = gradient_sums, .input_gradient = input_gradient};
}

}  // namespace lockstep::norm
