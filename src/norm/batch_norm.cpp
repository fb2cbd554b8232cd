// SPDX-License-Identifier: Apache-2.0
#include <ATen/SequenceNumber.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/backward_order.h"
#include "lockstep/norm/detail/batch_statistics.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "norm/batch_norm_operations.h"

namespace lockstep::norm {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// What one replica brings.
struct Share {
  at::Tensor x, weight, bias, output;
};

/// The backward pass of a batch norm of one replica, or of several that share theirs, with the same statistics. It is
/// two nodes: the first tells the other replicas the sums over this one's gradients, the second waits for theirs. In
/// between autograd computes weight gradients, and the replicas need not come to each layer at the same time.
class InputGradient : public Node {
 public:
  InputGradient(uint64_t number, const std::vector<Share>& shares, BatchStatistics statistics)
      : Node(number), statistics_(std::move(statistics)) {
    for (const Share& share : shares) {
      add_input_metadata(share.output);
      add_next_edge(torch::autograd::impl::gradient_edge(share.x));
      x_.emplace_back(share.x, /*is_output=*/false);
      weights_.emplace_back(share.weight, /*is_output=*/false);
    }
  }

  void expect(std::function<at::Tensor()> sums) { sums_ = std::move(sums); }

  variable_list apply(variable_list&& grads) override {
    variable_list result(grads.size());
    at::Tensor means;
    for (size_t r = 0; r < grads.size(); ++r) {
      if (!task_should_compute_output(r)) continue;
      if (!means.defined()) means = sums_() / statistics_.count;
      result[r] = batch_input_gradient(grads[r], x_[r].unpack(), statistics_.mean, statistics_.inverse_deviation,
                                       weights_[r].unpack(), means);
    }
    return result;
  }

  void release_variables() override {
    for (SavedVariable& x : x_) x.reset_data();
    for (SavedVariable& weight : weights_) weight.reset_data();
  }

  at::Tensor sums_of(size_t r, const at::Tensor& grad) const {
    return batch_gradient_sums(grad, x_[r].unpack(), statistics_.mean, statistics_.inverse_deviation);
  }

 private:
  BatchStatistics statistics_;
  std::vector<SavedVariable> x_, weights_;
  std::function<at::Tensor()> sums_;
};

class GradientSums : public Node {
 public:
  GradientSums(uint64_t number, const std::vector<Share>& shares, NodePointer<InputGradient> rest,
               Peers::GatherRows gather)
      : Node(number), rest_(std::move(rest)), gather_(std::move(gather)) {
    for (size_t r = 0; r < shares.size(); ++r) add_next_edge({rest_, static_cast<uint32_t>(r)});
    const auto add = [&](at::Tensor Share::*parameter) {
      if (!(shares[0].*parameter).defined()) return std::optional<at::ScalarType>();
      for (const Share& share : shares) add_next_edge(torch::autograd::impl::gradient_edge(share.*parameter));
      return std::optional((shares[0].*parameter).scalar_type());
    };
    weight_type_ = add(&Share::weight);
    bias_type_ = add(&Share::bias);
  }

  variable_list apply(variable_list&& grads) override {
    require(!at::GradMode::is_enabled(), "batch_norm",
            "a second gradient was asked for (create_graph), expected the first one alone");
    variable_list own;
    for (size_t r = 0; r < grads.size(); ++r) {
      if (!grads[r].defined()) grads[r] = input_metadata(r).zeros_like();
      own.push_back(rest_->sums_of(r, grads[r]));
    }
    rest_->expect([gathered = gather_(at::stack(own).flatten(1)), sizes = own[0].sizes().vec()] {
      return sum_as_tree(gathered()).view(sizes);
    });
    variable_list result = std::move(grads);
    if (weight_type_)
      for (const at::Tensor& sums : own) result.push_back(sums[1].to(*weight_type_));
    if (bias_type_)
      for (const at::Tensor& sums : own) result.push_back(sums[0].to(*bias_type_));
    return result;
  }

 private:
  NodePointer<InputGradient> rest_;
  Peers::GatherRows gather_;
  std::optional<at::ScalarType> weight_type_, bias_type_;
};

/// In autograd's order.
struct Numbers {
  uint64_t input_gradient, sums;
};

/// The outputs, with their history. `gather` makes the sums of these shares those of all.
variable_list with_history(const std::vector<Share>& shares, const BatchStatistics& statistics, const Numbers& numbers,
                           const Peers::GatherRows& gather) {
  variable_list outputs;
  bool differentiable = false;
  for (const Share& share : shares) {
    outputs.push_back(share.output);
    differentiable |= torch::autograd::compute_requires_grad(share.x, share.weight, share.bias);
  }
  if (!differentiable) return outputs;
  const auto rest = make_node<InputGradient>(numbers.input_gradient, shares, statistics);
  torch::autograd::set_history(outputs, make_node<GradientSums>(numbers.sums, shares, rest, gather));
  return outputs;
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
  if (alone) {
    const auto next = [] { return at::sequence_number::get_and_increment(); };
    return with_history({share}, *statistics, {next(), next()},
                        [](const at::Tensor& mine) { return [mine] { return mine; }; })[0];
  }
  // Counted on this replica's thread: whoever makes the nodes, those of one replica are in the order of its layers.
  const uint64_t waits = waiting_node_number();
  const Numbers numbers{.input_gradient = waits, .sums = early_node_number()};
  if (!peers->shares_backward())
    return with_history({share}, *statistics, numbers,
                        [peers](const at::Tensor& mine) { return peers->begin_all_gather(mine[0]); })[0];
  return peers->meet({x, weight, bias, share.output}, [&](const std::vector<std::vector<at::Tensor>>& brought) {
    std::vector<Share> shares;
    for (const auto& each : brought) shares.push_back({each[0], each[1], each[2], each[3]});
    return with_history(shares, *statistics, numbers, peers->gather_rows());
  });
}

}  // namespace lockstep::norm
