// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/batch_norm.h"
#include "lockstep/sparse/operations.h"
#include "sparse/feature_checks.h"
#include "sparse/registration.h"

namespace lockstep::sparse {
namespace {

using at::Tensor;

// The kernels of norm/detail/row_kernels.h, by way of the dispatcher.

Tensor moments(const Tensor& x) {
  static const auto handle = operation<Tensor(const Tensor&)>("column_moments");
  return handle.call(x);
}

Tensor normalize(const Tensor& x, const Tensor& mean, const Tensor& inverse_deviation, const Tensor& weight,
                 const Tensor& bias) {
  static const auto handle =
      operation<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>("normalize");
  return handle.call(x, mean, inverse_deviation, weight.defined() ? weight : at::ones_like(mean),
                     bias.defined() ? bias : at::zeros_like(mean));
}

Tensor gradient_sums(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& inverse_deviation) {
  static const auto handle =
      operation<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>("normalize_sums");
  return handle.call(g, x, mean, inverse_deviation);
}

Tensor input_gradient(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& inverse_deviation,
                      const Tensor& weight, const Tensor& means) {
  static const auto handle =
      operation<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
          "normalize_gradient");
  const Tensor scale = weight.defined() ? weight.to(at::kDouble) * inverse_deviation : inverse_deviation;
  return handle.call(g, x, mean, inverse_deviation, scale, means);
}

constexpr norm::Operations kRows{
    .moments = moments, .normalize = normalize, .gradient_sums = gradient_sums, .input_gradient = input_gradient};

void check_parameter(const char* name, const Tensor& parameter, int64_t channels) {
  require(!parameter.defined() || (parameter.dim() == 1 && parameter.size(0) == channels), "batch_norm", name, " is ",
          describe(parameter), ", expected [", channels, "]");
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double epsilon) {
  check_features("batch_norm", x, x.defined() && x.dim() > 0 ? x.size(0) : 0);
  const int64_t channels = x.size(1);
  check_parameter("weight", weight, channels);
  check_parameter("bias", bias, channels);
  check_parameter("running_mean", running_mean, channels);
  check_parameter("running_var", running_var, channels);
  require(training || (running_mean.defined() && running_var.defined()), "batch_norm",
          "there are no running statistics, expected them in evaluation");
  const norm::Layer layer{weight, bias, running_mean, running_var, momentum, epsilon};
  return training ? norm::batch_norm(kRows, x, layer) : norm::batch_norm_in_evaluation(kRows, x, layer);
}

}  // namespace lockstep::sparse
