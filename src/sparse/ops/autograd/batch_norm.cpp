// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/batch_statistics.h"
#include "lockstep/sparse/functional.h"
#include "sparse/checks.h"
#include "sparse/ops/operations.h"

namespace lockstep::sparse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// y = (x - mean) / deviation * weight + bias. With `batch_statistics` mean and deviation were made of x, so that its
/// gradient passes through them.
struct BatchNorm : Function<BatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                            double count, bool batch_statistics) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["batch"] = batch_statistics;
    return normalize(x, mean, inverse_deviation, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    require(!at::GradMode::is_enabled(), "batch_norm",
            "a second gradient was asked for (create_graph), expected the first one alone");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3], &g = grads[0];
    const at::Tensor own = normalize_sums(g, x, mean, inverse);
    const at::Tensor means = context->saved_data["batch"].toBool()
                                 ? own / std::max(1.0, context->saved_data["count"].toDouble())
                                 : at::zeros_like(own);
    at::Tensor dx;
    if (context->needs_input_grad(0))
      dx = normalize_gradient(g, x, mean, inverse, weight.to(at::kDouble) * inverse, means);
    return {dx, own[1].to(weight.scalar_type()), own[0].to(weight.scalar_type()), {}, {}, {}, {}};
  }
};

void check_parameter(const char* name, const at::Tensor& parameter, int64_t channels) {
  require(!parameter.defined() || (parameter.dim() == 1 && parameter.size(0) == channels), "batch_norm", name, " is ",
          describe(parameter), ", expected [", channels, "]");
}

}  // namespace

at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_var, bool training, double momentum,
                      double epsilon) {
  check_features("batch_norm", x, x.defined() && x.dim() > 0 ? x.size(0) : 0);
  const int64_t channels = x.size(1);
  check_parameter("weight", weight, channels);
  check_parameter("bias", bias, channels);
  check_parameter("running_mean", running_mean, channels);
  check_parameter("running_var", running_var, channels);
  require(training || (running_mean.defined() && running_var.defined()), "batch_norm",
          "there are no running statistics, expected them in evaluation");
  at::Tensor mean, variance;
  double count = 0;
  {
    const at::NoGradGuard no_grad;
    if (training) {
      const at::Tensor moments = column_moments(x);
      count = static_cast<double>(x.size(0));
      mean = moments[1];
      variance = moments[2] / std::max(1.0, count);
      norm::move_running_statistics(running_mean, running_var, moments, momentum);
    } else {
      // A copy: the buffer may move before the backward pass.
      mean = running_mean.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
      variance = running_var.to(at::kDouble);
    }
  }
  const at::TensorOptions options = x.options().dtype(weight.defined() ? weight.scalar_type() : x.scalar_type());
  return BatchNorm::apply(x, weight.defined() ? weight : at::ones({channels}, options),
                          bias.defined() ? bias : at::zeros({channels}, options), mean, at::rsqrt(variance + epsilon),
                          count, training);
}

}  // namespace lockstep::sparse
