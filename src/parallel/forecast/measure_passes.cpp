// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/borders.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/slices.h"
#include "lockstep/context/draws.h"
#include "lockstep/dense/detail/image_operations.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/choose_split.h"
#include "parallel/split/border.h"
#include "parallel/split/late_weights.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::variable_list;

int64_t bytes_in_use() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// As a process sends what the next one needs (process_pipeline.cpp).
void add_crossing(StageCost& cost, const Bundle& bundle) {
  const CrossingBytes crossing = crossing_of(bundle);
  cost.handed_bytes += crossing.handed_bytes;
  cost.handed_tensors += crossing.handed_tensors;
  cost.returned_bytes += crossing.returned_bytes;
  cost.returned_tensors += crossing.returned_tensors;
}

/// Between stages: takes the time of the one under way, and the memory that it left behind.
class Meter : public Borders {
 public:
  explicit Meter(std::vector<StageCost>& costs) : costs_(costs), began_(thread_seconds()) {}

  bool come_to(size_t next, size_t stages, Bundle& bundle) override {
    if (next > 0) {
      add_time();
      costs_[next - 1].kept_bytes += std::max<int64_t>(0, bytes_in_use() - bytes_);
      add_crossing(costs_[next - 1], bundle);
    }
    if (next > 0 && next < stages)
      lay_border(bundle, [this, next] {
        add_time();
        running_ = next - 1;
        stage_began_ = began_;
      });
    running_ = std::min(next, stages - 1);
    bytes_ = bytes_in_use();
    began_ = thread_seconds();
    return true;
  }

  /// What comes behind the network belongs to its last stage.
  void begin_backward() {
    add_time();
    goes_back_ = true;
    stage_began_ = began_;
  }

  void add_time() {
    const double now = thread_seconds();
    (goes_back_ ? costs_[running_].backward : costs_[running_].forward) += now - began_;
    began_ = now;
  }

  /// As Slices::Run.
  void run_slices(int64_t count, const std::function<void(int64_t)>& part) {
    const double before = thread_seconds();
    for (int64_t slice = 0; slice < count; ++slice) part(slice);
    (goes_back_ ? costs_[running_].sliced_backward : costs_[running_].sliced_forward) += thread_seconds() - before;
    ++costs_[running_].sliced_layers;
  }

  GradientCost gradient(const at::Tensor& parameter) const {
    return {.numel = parameter.numel(),
            .element_bytes = static_cast<int64_t>(parameter.element_size()),
            .stage = static_cast<int64_t>(running_),
            .at = thread_seconds() - stage_began_};
  }

 private:
  std::vector<StageCost>& costs_;
  size_t running_ = 0;
  int64_t bytes_ = 0;
  double began_;
  double stage_began_ = 0;  // its backward pass
  bool goes_back_ = false;
};

/// Goes back stage by stage, each in halves, as if it were a part.
class Halves : public Borders {
 public:
  explicit Halves(size_t stages) : ends_(stages) {}

  bool come_to(size_t next, size_t, Bundle& bundle) override {
    if (next == 0) return true;
    ends_[next - 1] = lay_border(bundle, [] {});
    if (ends_[next - 1]) ends_[next - 1]->keep();
    return true;
  }

  void go_back(const at::Tensor& loss, std::vector<StageCost>& costs) const {
    torch::autograd::edge_list from{torch::autograd::impl::gradient_edge(loss)};
    std::optional<variable_list> gradients{{at::ones_like(loss)}};
    for (size_t stage = ends_.size(); stage > 0 && gradients; --stage) {
      const auto& behind = ends_[stage - 1];
      LateWeights late;
      PartGraph(from, behind.get()).go_back(*gradients, late);
      const double began = thread_seconds();
      for (; !late.empty(); late.pop_front()) late.front()();
      if (stage < ends_.size()) costs[stage].late_backward = thread_seconds() - began;
      if (!behind) return;
      from = behind->next_edges();
      gradients = behind->take();
    }
  }

 private:
  std::vector<NodePointer<Border>> ends_;  // of stages
};

/// Calls back when a parameter's gradient is there, as long as it lives.
class ArrivalHooks {
 public:
  using Call = std::function<void(const at::Tensor&)>;

  ArrivalHooks(const torch::nn::Module& network, const Call& call) : parameters_(network.parameters()) {
    std::erase_if(parameters_, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
    for (const at::Tensor& parameter : parameters_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(call));
  }
  ~ArrivalHooks() {
    for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
  ArrivalHooks(const ArrivalHooks&) = delete;
  ArrivalHooks& operator=(const ArrivalHooks&) = delete;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  struct Hook : torch::autograd::PostAccumulateGradHook {
    explicit Hook(Call given) : call(std::move(given)) {}
    void operator()(const at::Tensor& parameter) override { call(parameter); }
    Call call;
  };

  std::vector<at::Tensor> parameters_;
};

// Parameters whose gradients did not come: a step takes them as zero, at the end.
void add_missing(StepCost& cost, const std::vector<at::Tensor>& parameters,
                 const std::unordered_set<const void*>& seen) {
  for (const at::Tensor& parameter : parameters)
    if (!seen.contains(parameter.unsafeGetTensorImpl()))
      cost.gradients.push_back({.numel = parameter.numel(),
                                .element_bytes = static_cast<int64_t>(parameter.element_size()),
                                .stage = 0,
                                .at = cost.stages[0].backward});
}

}  // namespace

StepCost measure_passes(torch::nn::Module& network, Staged& staged, int64_t slices, uint64_t seed,
                        const std::function<at::Tensor()>& loss) {
  const ReplicaNumerics numerics;
  StepCost cost;
  for (int pass = 0; pass < 2; ++pass) {
    cost = {};
    for (const Stage& stage : staged.stages()) cost.stages.push_back({.name = stage.name});
    Meter meter(cost.stages);
    std::unordered_set<const void*> seen;
    const ArrivalHooks hooks(network, [&](const at::Tensor& parameter) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) cost.gradients.push_back(meter.gradient(parameter));
    });
    Draws draws{RandomKey{seed}};
    const Slices in(slices,
                    [&](int64_t count, const std::function<void(int64_t)>& part) { meter.run_slices(count, part); });
    const ContextScope context({.draws = &draws,
                                .images = &dense::image_operations(),
                                .slices = slices > 1 ? &in : nullptr,
                                .borders = &meter});
    const at::Tensor value = loss();
    meter.begin_backward();
    torch::autograd::backward({value}, {});
    meter.add_time();
    add_missing(cost, hooks.parameters(), seen);
    network.zero_grad(true);
  }
  Halves halves(cost.stages.size());
  Draws draws{RandomKey{seed}};
  const Slices in(slices);
  const ContextScope context({.draws = &draws,
                              .images = &dense::image_operations(),
                              .slices = slices > 1 ? &in : nullptr,
                              .borders = &halves});
  halves.go_back(loss(), cost.stages);
  network.zero_grad(true);
  return cost;
}

}  // namespace lockstep::parallel
