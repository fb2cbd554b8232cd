// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/detail/batch_norm.h"

#include <ATen/SequenceNumber.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
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
#include "lockstep/context/detail/context.h"
#include "lockstep/norm/detail/after_step.h"
#include "lockstep/norm/detail/batch_statistics.h"

namespace lockstep::norm {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// What one replica brings.
struct Share {
  at::Tensor x, weight, bias, output;
};

/// Begins to add up the sums of replicas' gradients, given those of the replicas that share a backward pass.
using SumAll = std::function<Peers::Gathered(const variable_list& own)>;

/// The backward pass of a batch norm of one replica, or of several that share theirs, with the same statistics. It is
/// two nodes: the first tells the other replicas the sums over this one's gradients, the second waits for theirs. In
/// between autograd computes weight gradients, and the replicas need not come to each layer at the same time.
class InputGradient : public Node {
 public:
  InputGradient(uint64_t number, const Operations& operations, const std::vector<Share>& shares,
                BatchStatistics statistics)
      : Node(number), operations_(operations), statistics_(std::move(statistics)) {
    for (const Share& share : shares) {
      add_input_metadata(share.output);
      add_next_edge(torch::autograd::impl::gradient_edge(share.x));
      x_.emplace_back(share.x, /*is_output=*/false);
      weights_.emplace_back(share.weight, /*is_output=*/false);
    }
    unpacked_.resize(shares.size());
  }

  void expect(Peers::Gathered sums) { sums_ = std::move(sums); }

  variable_list apply(variable_list&& grads) override {
    variable_list result(grads.size());
    at::Tensor means;
    for (size_t r = 0; r < grads.size(); ++r) {
      if (!task_should_compute_output(r)) continue;
      if (!means.defined()) means = sums_() / statistics_.count;
      result[r] = operations_.input_gradient(grads[r], std::exchange(unpacked_[r], {}), statistics_.mean,
                                             statistics_.inverse_deviation, weights_[r].unpack(), means);
    }
    return result;
  }

  void release_variables() override {
    for (SavedVariable& x : x_) x.reset_data();
    for (SavedVariable& weight : weights_) weight.reset_data();
    for (at::Tensor& x : unpacked_) x.reset();
  }

  /// Both nodes need x, and hooks on saved tensors, as of checkpointed parts, allow it to be asked for once.
  at::Tensor sums_of(size_t r, const at::Tensor& grad) {
    unpacked_[r] = x_[r].unpack();
    return operations_.gradient_sums(grad, unpacked_[r], statistics_.mean, statistics_.inverse_deviation);
  }

 private:
  Operations operations_;
  BatchStatistics statistics_;
  std::vector<SavedVariable> x_, weights_;
  std::vector<at::Tensor> unpacked_;  // x, from the sums to the gradient
  Peers::Gathered sums_;
};

class GradientSums : public Node {
 public:
  GradientSums(uint64_t number, const std::vector<Share>& shares, NodePointer<InputGradient> rest, SumAll sum)
      : Node(number), rest_(std::move(rest)), sum_(std::move(sum)) {
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
    rest_->expect(sum_(own));
    variable_list result = std::move(grads);
    if (weight_type_)
      for (const at::Tensor& sums : own) result.push_back(sums[1].to(*weight_type_));
    if (bias_type_)
      for (const at::Tensor& sums : own) result.push_back(sums[0].to(*bias_type_));
    return result;
  }

 private:
  NodePointer<InputGradient> rest_;
  SumAll sum_;
  std::optional<at::ScalarType> weight_type_, bias_type_;
};

/// In autograd's order.
struct Numbers {
  uint64_t input_gradient, sums;
};

/// Those of a node that waits for nobody.
Numbers next_numbers() {
  const uint64_t number = at::sequence_number::get_and_increment();
  return {.input_gradient = number, .sums = at::sequence_number::get_and_increment()};
}

/// The sums of all replicas' shares, of what `gather` brings together.
SumAll sum_all(Peers::GatherRows gather) {
  return [gather = std::move(gather)](const variable_list& own) -> Peers::Gathered {
    return [gathered = gather(at::stack(own).flatten(1)), sizes = own[0].sizes().vec()] {
      return sum_as_tree(gathered()).view(sizes);
    };
  };
}

/// The outputs, with their history. `sum` makes the sums of these shares those of the whole batch.
variable_list with_history(const Operations& operations, const std::vector<Share>& shares,
                           const BatchStatistics& statistics, const Numbers& numbers, const SumAll& sum) {
  variable_list outputs;
  bool differentiable = false;
  for (const Share& share : shares) {
    outputs.push_back(share.output);
    differentiable |= torch::autograd::compute_requires_grad(share.x, share.weight, share.bias);
  }
  if (!differentiable) return outputs;
  const auto rest = make_node<InputGradient>(numbers.input_gradient, operations, shares, statistics);
  torch::autograd::set_history(outputs, make_node<GradientSums>(numbers.sums, shares, rest, sum));
  return outputs;
}

}  // namespace

at::Tensor batch_norm(const Operations& operations, const at::Tensor& x, const Layer& layer, BatchNormMode mode,
                      Peers* peers) {
  const bool ghost = mode == BatchNormMode::ghost;
  Share share{x, layer.weight, layer.bias, {}};
  std::optional<BatchStatistics> statistics;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor own = operations.moments(x);
    const at::Tensor moments = ghost ? own : exchange_moments(peers, own);
    if (layer.running_mean.defined() || layer.running_var.defined()) {
      if (ghost)
        move_to_mean_of_shares(peers, rows_of_share(own), layer);
      else
        move_running_statistics(layer.running_mean, layer.running_var, moments, layer.momentum);
    }
    statistics.emplace(moments, layer.epsilon);
    share.output = operations.normalize(x, statistics->mean, statistics->inverse_deviation, layer.weight, layer.bias);
  }
  const bool alone = ghost || peers == nullptr || peers->replicas() == 1;
  if (alone)
    return with_history(operations, {share}, *statistics, next_numbers(),
                        [](const variable_list& own) { return [sums = own[0]] { return sums; }; })[0];
  // Counted on this replica's thread: whoever makes the nodes, those of one replica are in the order of its layers.
  const uint64_t waits = waiting_node_number();
  const Numbers numbers{.input_gradient = waits, .sums = early_node_number()};
  if (!peers->shares_backward())
    return with_history(operations, {share}, *statistics, numbers,
                        sum_all([peers](const at::Tensor& mine) { return peers->begin_all_gather(mine[0]); }))[0];
  return peers->meet({x, layer.weight, layer.bias, share.output},
                     [&](const std::vector<std::vector<at::Tensor>>& brought) {
                       std::vector<Share> shares;
                       for (const auto& each : brought) shares.push_back({each[0], each[1], each[2], each[3]});
                       return with_history(operations, shares, *statistics, numbers, sum_all(peers->gather_rows()));
                     });
}

at::Tensor batch_norm_in_evaluation(const Operations& operations, const at::Tensor& x, const Layer& layer) {
  Share share{x, layer.weight, layer.bias, {}};
  std::optional<BatchStatistics> statistics;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor mean = layer.running_mean.to(at::kDouble);
    // A copy, of a batch of one row: the buffers may move before the backward pass.
    statistics.emplace(at::stack({at::ones_like(mean), mean, layer.running_var.to(at::kDouble)}), layer.epsilon);
    share.output = operations.normalize(x, statistics->mean, statistics->inverse_deviation, layer.weight, layer.bias);
  }
  // No statistic depends on x.
  return with_history(operations, {share}, *statistics, next_numbers(),
                      [](const variable_list& own) { return [none = at::zeros_like(own[0])] { return none; }; })[0];
}

}  // namespace lockstep::norm
