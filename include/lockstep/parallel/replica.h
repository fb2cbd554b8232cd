// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/context/timeline_scope.h"
#include "lockstep/numerics/placement.h"
#include "lockstep/parallel/optimizer.h"
#include "lockstep/parallel/team.h"

namespace lockstep::parallel {

/// How a network's tensors lie in memory: part of the recipe, since convolutions compute other bits in another format.
enum class MemoryFormat : uint8_t {
  automatic,  ///< channels-last where the network has 2-d or 3-d convolutions, else contiguous
  contiguous,
  channels_last
};

struct ShareOptions {
  MemoryFormat memory_format = MemoryFormat::automatic;
  bool operator==(const ShareOptions&) const = default;
};

/// A number that replicas add up along with an optimiser's steps: see Replica::step_sum.
class StepSum {
 private:
  friend class Replica;
  friend struct StepResult;
  size_t index_ = 0;  // of those of its optimiser
};

/// What a step did, the same on every replica.
struct StepResult {
  /// The mean of the losses over all replicas, weighted as the gradients are.
  double loss = 0;
  /// The sum of the weights: the number of examples, where these were the weights.
  double weight = 0;
  /// The norm of the averaged gradient before clipping, where clip_norm asked for it; else 0.
  double gradient_norm = 0;
  /// False where loss scaling left the update out.
  bool updated = true;
  /// What all replicas have added to this number for this step.
  double sum(const StepSum& of) const { return sums.at(of.index_); }
  /// In the order in which they were registered.
  std::vector<double> sums;
};

/// One of R replicas, as the code inside Team::run sees itself. All replicas make the same calls in the same order.
class Replica {
 public:
  Replica(const std::shared_ptr<TeamState>& team, int64_t member);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  ~Replica();

  /// This replica's number in [0, replicas()), the same in every placement.
  int64_t number() const;
  int64_t replicas() const;
  /// Where its tensors live.
  at::Device device() const;
  /// Its part of a batch of `examples`: contiguous, sizes differ by at most one, empty where there are fewer examples
  /// than replicas.
  Interval share_of(int64_t examples) const;
  at::Tensor share_of(const at::Tensor& batch) const;

  /// Collective. Makes the network one of R that hold the weights and buffers of replica 0: one storage of weights a
  /// process, gradients and buffers for each. Each replica passes a network of its own, made inside run(), or all pass
  /// one that was made outside; then each gets a clone. Weights are moved to the device and the memory format.
  /// Parameters that occur twice (tied weights) stay tied. Throws Error where the replicas' networks differ in names,
  /// shapes or dtypes, or one from outside can't be cloned.
  template <class Network>
  std::shared_ptr<Network> share(const std::shared_ptr<Network>& network, const ShareOptions& options = {});
  template <class Holder>
  Holder share(const Holder& network, const ShareOptions& options = {}) requires
      std::derived_from<typename Holder::ContainedType, torch::nn::Module>;

  /// Collective. Updates the parameters of all networks shared so far that have no optimiser yet and require a
  /// gradient, or those of the groups. Throws Error where there is none, or one is not of a shared network.
  Optimizer optimizer(const Rule& rule, const OptimizerOptions& options = {});
  Optimizer optimizer(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options = {});

  /// This replica's backward pass: gradients are added to those that are there. `loss` is the mean over a share of
  /// `weight` examples (or tokens): gradients and losses of all replicas are averaged with these weights when step()
  /// comes, so uneven shares count as one batch would. A share without examples has weight 0 and an undefined loss; but
  /// where batch norms are synchronised it goes through the network like any other, since the others wait for it there,
  /// and its loss is one of nothing, such as the sum of its logits.
  void backward(const at::Tensor& loss, const Optimizer& optimizer, double weight = 1);

  /// Collective. backward(), then the sum over all replicas in the tree's order, then the update of the weights, and
  /// gradients are gone. Several backward() before it accumulate.
  StepResult step(const at::Tensor& loss, Optimizer& optimizer, double weight = 1);
  /// Only the update, for gradients that backward() calls have left.
  StepResult step(Optimizer& optimizer);

  /// For TeamOptions::audit, before the first step. `loss_of(replica, pass)` computes the loss of backward pass number
  /// `pass` of the step that is under way (0, and on where passes accumulate), of the share of any replica, with this
  /// replica's networks: all that this replica's own code does and draws from the beginning of a step to its
  /// backward(). It runs on another thread while all replicas wait, and changes nothing but buffers of the networks.
  using LossAgain = std::function<at::Tensor(int64_t replica, int64_t pass)>;
  void audit_with(LossAgain loss_of);

  /// Collective. Registers a number that travels with each step of the optimiser, at no cost of its own: correct
  /// answers, a wish to stop. Replicas add to it before a step, and the step gives the sum, in float64 and in the
  /// tree's order, and starts again at 0. Throws Error where replicas give different names, or one that is taken.
  ///
  ///     const StepSum correct = me.step_sum(optimizer, "correct");  // once
  ///     me.add(optimizer, correct, 3);
  ///     const auto result = me.step(loss, optimizer);               // result.sum(correct)
  StepSum step_sum(const Optimizer& optimizer, const std::string& name);
  void add(const Optimizer& optimizer, const StepSum& to, double value) const;
  /// A tensor's one number. It may lie on a GPU: nobody waits for it before the step.
  void add(const Optimizer& optimizer, const StepSum& to, const at::Tensor& value) const;

  /// Collective. The optimiser's whole state, wherever its parts lie, on every replica: what Optimizer::state_dict
  /// gives where that can. Who does not want it gets an empty one, and where processes hold parts of the network
  /// nothing travels to those that don't want it.
  std::map<std::string, at::Tensor> state_dict(const Optimizer& optimizer, bool wanted = true);
  /// Collective. The parameters and this replica's buffers by name, of a network that was shared, wherever its parts
  /// lie; those that lie here are no copies.
  std::map<std::string, at::Tensor> state_dict(const torch::nn::Module& network, bool wanted = true);
  /// Collective. The buffers in which replicas differ, [replicas, ...], by name.
  std::map<std::string, at::Tensor> differing_buffers(const torch::nn::Module& network, bool wanted = true);

  /// The steps made so far, with whatever optimiser. Random layers draw by (seed, step, replica, number of the draw in
  /// the step), from the first share() on; before that, by (seed, number of the draw), so that the networks that the
  /// replicas make are alike.
  int64_t steps() const;
  /// For a run that goes on: the steps that it had made.
  void set_steps(int64_t steps);

  /// Collective, for run_surviving() (survive.h), at the head of each step and after the last one. The first call puts
  /// back what the copy has, where there is one: weights and buffers of all networks shared, the optimiser's state,
  /// steps(), and this replica's `own` numbers, each in its tensor. Later ones copy them, all but those that a copy is
  /// not due for. Else it does nothing.
  void keep(const Optimizer& optimizer, const std::vector<at::Tensor>& own = {});
  void keep(const std::vector<const Optimizer*>& optimizers, const std::vector<at::Tensor>& own = {});

  /// Where this replica's time went, from the start of the run to the end of the last step. The caller's own code
  /// counts as forward, but for what it marks itself: `PhaseScope reading(Phase::data)`.
  Timings timings() const;

  /// Collective. The sum over all replicas of a small tensor, in float64 and in the tree's order; the same bits on
  /// each.
  at::Tensor sum(const at::Tensor& mine);
  /// Collective. [n] of each replica: [R, n].
  at::Tensor all_gather(const at::Tensor& mine);
  /// Collective.
  void barrier();

  /// Collective. `body(examples)` is called, without gradients and with the networks in eval mode, for batches that
  /// cover this replica's share of `examples` examples, at most `batch` at a time; it returns a tensor of sums (of
  /// losses, of correct answers, of examples), float64 on the CPU in the end. Returns the sums over all replicas: each
  /// example counts once. Where there are fewer examples than replicas, some see one empty batch, for its sizes.
  at::Tensor evaluate(int64_t examples, int64_t batch, const std::function<at::Tensor(Interval)>& body);

  /// Collective. Compares what must be equal on all processes (weights, the optimiser's state) and, with `buffers`, the
  /// networks' buffers of all replicas, which are equal where every batch norm is synchronised. Throws Error that names
  /// the first tensor that differs, the step, and who has other bits than most: a process of three or more, or a
  /// replica's buffer. step() does so itself after every `every` updates when that is not 0; else once, now.
  void watch_divergence(const Optimizer& optimizer, int64_t every = 0, bool buffers = false);

 private:
  std::shared_ptr<torch::nn::Module> share_module(const std::shared_ptr<torch::nn::Module>& module,
                                                  const ShareOptions& options);

  void collect(const at::Tensor& loss, const Optimizer& optimizer, double weight) const;
  void differentiate(const at::Tensor& loss, double scale) const;
  void compare(const Optimizer& optimizer, bool buffers);
  void begin_step();
  void put_back(const std::vector<const Optimizer*>& optimizers, const std::vector<at::Tensor>& own);
  void copy(const std::vector<const Optimizer*>& optimizers, const std::vector<at::Tensor>& own);
  std::map<std::string, at::Tensor> join(const std::map<std::string, at::Tensor>& mine, bool wanted);

  friend class SurvivingTeam;
  struct State;
  std::unique_ptr<State> state_;
};

template <class Network>
std::shared_ptr<Network> Replica::share(const std::shared_ptr<Network>& network, const ShareOptions& options) {
  return std::dynamic_pointer_cast<Network>(share_module(network, options));
}

template <class Holder>
Holder Replica::share(const Holder& network, const ShareOptions& options) requires
    std::derived_from<typename Holder::ContainedType, torch::nn::Module> {
  return Holder(share(network.ptr(), options));
}

}  // namespace lockstep::parallel
