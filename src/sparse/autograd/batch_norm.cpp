// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/sparse/functional.h"
#include "sparse/checks.h"
#include "sparse/operations.h"

namespace lockstep::sparse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// A merge as a value that autograd's context can keep.
struct Merge : torch::CustomClassHolder {
  explicit Merge(MergeStatistics given) : function(std::move(given)) {}
  MergeStatistics function;
};

/// y = (x - mean) / deviation * weight + bias. With `batch_statistics` mean and deviation were made of x (and, with a
/// merge, of all replicas' x), so that its gradient passes through them.
struct BatchNorm : Function<BatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                            double count, bool batch_statistics, MergeStatistics merge) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["batch"] = batch_statistics;
    if (merge) context->saved_data["merge"] = at::IValue::make_capsule(c10::make_intrusive<Merge>(std::move(merge)));
    return normalize(x, mean, inverse_deviation, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    require(!at::GradMode::is_enabled(), "batch_norm",
            "a second gradient was asked for (create_graph), expected the first one alone");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3], &g = grads[0];
    const at::Tensor own = normalize_sums(g, x, mean, inverse);
    at::Tensor means = at::zeros_like(own);
    if (context->saved_data["batch"].toBool()) {
      const auto merge = context->saved_data.find("merge");
      const at::Tensor all = merge == context->saved_data.end()
                                 ? own
                                 : c10::static_intrusive_pointer_cast<Merge>(merge->second.toCapsule())->function(own);
      means = all / std::max(1.0, context->saved_data["count"].toDouble());
    }
    at::Tensor dx;
    if (context->needs_input_grad(0))
      dx = normalize_gradient(g, x, mean, inverse, weight.to(at::kDouble) * inverse, means);
    return {dx, own[1].to(weight.scalar_type()), own[0].to(weight.scalar_type()), {}, {}, {}, {}, {}};
  }
};

void check_parameter(const char* name, const at::Tensor& parameter, int64_t channels) {
  require(!parameter.defined() || (parameter.dim() == 1 && parameter.size(0) == channels), "batch_norm", name, " is ",
          describe(parameter), ", expected [", channels, "]");
}

void move_towards(const at::Tensor& running, const at::Tensor& target, double momentum) {
  if (running.defined()) running.mul_(1 - momentum).add_(target.to(running.scalar_type()), momentum);
}

}  // namespace

at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_var, bool training, double momentum,
                      double epsilon, const BatchNormMerge& merge) {
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
      at::Tensor moments = column_moments(x);
      if (merge.moments) moments = merge.moments(moments);
      count = channels > 0 ? moments[0][0].item<double>() : 0;
      mean = moments[1];
      variance = moments[2] / std::max(1.0, count);
      if (count > 0) {
        move_towards(running_mean, mean, momentum);
        move_towards(running_var, moments[2] / std::max(1.0, count - 1), momentum);
      }
    } else {
      mean = running_mean.to(at::kDouble);
      variance = running_var.to(at::kDouble);
    }
  }
  const at::TensorOptions options = x.options().dtype(weight.defined() ? weight.scalar_type() : x.scalar_type());
  return BatchNorm::apply(x, weight.defined() ? weight : at::ones({channels}, options),
                          bias.defined() ? bias : at::zeros({channels}, options), mean, at::rsqrt(variance + epsilon),
                          count, training, merge.sums);
}

at::Tensor merge_moments(const std::vector<at::Tensor>& moments) {
  require(!moments.empty(), "merge_moments", "there are no moments, expected one set at least");
  std::vector<at::Tensor> level = moments;
  while (level.size() > 1) {
    std::vector<at::Tensor> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      if (i + 1 == level.size()) {
        next.push_back(level[i]);
        continue;
      }
      const at::Tensor &a = level[i], &b = level[i + 1];
      const at::Tensor count = a[0] + b[0], delta = b[1] - a[1];
      const at::Tensor share = at::where(count > 0, b[0] / count.clamp_min(1), at::zeros_like(count));
      next.push_back(at::stack({count, a[1] + delta * share, a[2] + b[2] + delta * delta * a[0] * share}));
    }
    level.swap(next);
  }
  return level[0];
}

}  // namespace lockstep::sparse
