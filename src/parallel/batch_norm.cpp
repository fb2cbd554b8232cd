// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "lockstep/core/batch_statistics.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "parallel/batch_norm_operations.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Batch norm of one replica, or of several that share their backward pass, with the same statistics. Their outputs
/// were computed already, each on its replica's thread; this makes the node.
struct BatchNormNode : Function<BatchNormNode> {
  /// `variables` are the x of each replica, then their weights, then their biases, as far as there are any.
  static variable_list forward(AutogradContext* context, at::TensorList variables, const variable_list& outputs,
                               bool has_weight, bool has_bias, const BatchStatistics& statistics, Peers* peers) {
    const size_t replicas = outputs.size();
    variable_list saved{statistics.mean, statistics.inverse_deviation, statistics.count};
    saved.insert(saved.end(), variables.begin(),
                 variables.begin() + static_cast<ptrdiff_t>(replicas * (1 + has_weight)));
    context->save_for_backward(std::move(saved));
    context->saved_data["replicas"] = static_cast<int64_t>(replicas);
    context->saved_data["weight"] = has_weight;
    context->saved_data["bias"] = has_bias;
    context->saved_data["bias_type"] = static_cast<int64_t>(variables.back().scalar_type());
    context->saved_data["peers"] = reinterpret_cast<int64_t>(peers);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    require(!at::GradMode::is_enabled(), "batch_norm",
            "a second gradient was asked for (create_graph), expected the first one alone");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &mean = saved[0], &inverse = saved[1], &count = saved[2];
    const size_t replicas = grads.size();
    const bool has_weight = context->saved_data["weight"].toBool(), has_bias = context->saved_data["bias"].toBool();
    variable_list own;
    for (size_t r = 0; r < replicas; ++r) own.push_back(batch_gradient_sums(grads[r], saved[3 + r], mean, inverse));
    // Without peers in this backward pass their sums are all here.
    auto* peers = reinterpret_cast<Peers*>(context->saved_data["peers"].toInt());
    const at::Tensor means = (replicas > 1 ? sum_as_tree(at::stack(own)) : exchange_sums(peers, own[0])) / count;

    variable_list result(replicas * (1 + has_weight + has_bias) + 5);
    const auto bias_type = static_cast<at::ScalarType>(context->saved_data["bias_type"].toInt());
    for (size_t r = 0; r < replicas; ++r) {
      const at::Tensor weight = has_weight ? saved[3 + replicas + r] : at::Tensor();
      if (context->needs_input_grad(r))
        result[r] = batch_input_gradient(grads[r], saved[3 + r], mean, inverse, weight, means);
      if (has_weight) result[replicas + r] = own[r][1].to(weight.scalar_type());
      if (has_bias) result[replicas * (1 + has_weight) + r] = own[r][0].to(bias_type);
    }
    return result;
  }
};

/// What one replica brings to the node.
struct Share {
  at::Tensor x, weight, bias, output;
};

variable_list make_node(const std::vector<Share>& shares, const BatchStatistics& statistics, Peers* peers) {
  variable_list variables, outputs;
  const bool has_weight = shares[0].weight.defined(), has_bias = shares[0].bias.defined();
  for (const Share& share : shares) variables.push_back(share.x);
  if (has_weight)
    for (const Share& share : shares) variables.push_back(share.weight);
  if (has_bias)
    for (const Share& share : shares) variables.push_back(share.bias);
  for (const Share& share : shares) outputs.push_back(share.output);
  return BatchNormNode::apply(at::TensorList(variables), outputs, has_weight, has_bias, statistics, peers);
}

/// The mean over replicas of their batches' statistics, as moments: what ghost batch norm moves to. A share of one row
/// has a mean, but no variance that anybody could tell.
at::Tensor mean_of_shares(Peers* peers, const at::Tensor& moments) {
  const at::Tensor some = (moments[0] > 0).to(at::kDouble), several = (moments[0] > 1).to(at::kDouble);
  const at::Tensor variance = moments[2] / (moments[0] - 1).clamp_min(1);
  const at::Tensor sums = exchange_sums(peers, at::stack({some, moments[1] * some, several, variance * several}));
  // A count of two makes the unbiased variance the sum of squares itself; a count of one says that there is none.
  return at::stack(
      {sums[0].clamp_max(1) + sums[2].clamp_max(1), sums[1] / sums[0].clamp_min(1), sums[3] / sums[2].clamp_min(1)});
}

void check(const char* name, const at::Tensor& given, const at::Tensor& x) {
  require(!given.defined() || (given.dim() == 1 && given.size(0) == x.size(1)), "sync_batch_norm", name, " is ",
          given.defined() ? given.sizes() : at::IntArrayRef(), ", expected [", x.size(1), "] for x ", x.sizes());
}

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double epsilon, BatchNormMode mode, Peers* peers) {
  require(x.dim() >= 2 && at::isFloatingType(x.scalar_type()), "sync_batch_norm", "x is ", x.scalar_type(), " ",
          x.sizes(), ", expected a floating-point [N, C, ...]");
  check("weight", weight, x);
  check("bias", bias, x);
  check("running_mean", running_mean, x);
  check("running_var", running_var, x);
  const bool ghost = mode == BatchNormMode::ghost;
  Share share{x, weight, bias, {}};
  std::optional<BatchStatistics> statistics;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor own = batch_moments(x);
    const at::Tensor moments = ghost ? own : exchange_moments(peers, own);
    if (running_mean.defined() || running_var.defined())
      move_running_statistics(running_mean, running_var, ghost ? mean_of_shares(peers, own) : moments, momentum);
    statistics.emplace(moments, epsilon);
    share.output = batch_normalize(x, statistics->mean, statistics->inverse_deviation, weight, bias);
  }
  const bool alone = ghost || peers == nullptr || peers->replicas() == 1;
  if (alone) return make_node({share}, *statistics, nullptr)[0];
  if (!peers->shares_backward()) return make_node({share}, *statistics, peers)[0];
  return peers->meet({x, weight, bias, share.output}, [&](const std::vector<std::vector<at::Tensor>>& brought) {
    std::vector<Share> shares;
    for (const auto& each : brought) shares.push_back({each[0], each[1], each[2], each[3]});
    return make_node(shares, *statistics, nullptr);
  });
}

}  // namespace lockstep::parallel
