// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/pipeline.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/detail/median.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/sequential_stages.h"
#include "parallel/split/border.h"
#include "parallel/split/cut.h"
#include "parallel/split/late_weights.h"

namespace lockstep::parallel {
namespace {

/// A module of a sequence, with the border in front of it.
struct SequenceStage : torch::nn::Module {
  SequenceStage(torch::nn::AnyModule given, size_t number, size_t stages)
      : module(std::move(given)), number(number), stages(stages) {}

  at::Tensor forward(const at::Tensor& x) {
    Borders* const borders = Context::current().borders;
    if (borders == nullptr) return module.forward(x);
    Bundle bundle;
    bundle.put(x);
    if (borders->come_to(number, stages, bundle)) bundle.put(module.forward(bundle.get<at::Tensor>()));
    if (number + 1 < stages) return bundle.get<at::Tensor>();
    borders->come_to(stages, stages, bundle);
    return bundle.get<at::Tensor>();
  }

  torch::nn::AnyModule module;
  size_t number, stages;
};

}  // namespace

std::vector<Stage> stages_in(torch::nn::Module& network) {
  if (auto* staged = dynamic_cast<Staged*>(&network)) return staged->stages();
  if (auto* modules = network.as<torch::nn::SequentialImpl>()) return stages_of(*modules);
  refuse_without_stages("share", network.name());
}

std::vector<std::string> make_divisible(const std::vector<std::shared_ptr<torch::nn::Module>>& networks,
                                        int64_t parts) {
  std::vector<std::string> names;
  for (const Stage& stage : stages_in(*networks[0])) names.push_back(stage.name);
  require(static_cast<int64_t>(names.size()) >= parts, "share", networks[0]->name(), " has ", names.size(),
          names.size() == 1 ? " stage" : " stages", ", expected ", parts, " at least for split p", parts,
          ": a part has one or more");
  if (dynamic_cast<const Staged*>(networks[0].get()) != nullptr) return names;
  for (const auto& network : networks) {
    size_t number = 0;
    for (torch::nn::AnyModule& module : *network->as<torch::nn::SequentialImpl>())
      module = torch::nn::AnyModule(std::make_shared<SequenceStage>(module, number++, names.size()));
  }
  return names;
}

std::vector<int64_t> devices_of_parts(int64_t devices, int64_t parts) {
  const int64_t count = std::min(devices, parts);
  std::vector<int64_t> all(count, devices / count);
  for (int64_t part = 0; part < devices % count; ++part) ++all[part];
  return all;
}

class Pipeline::Member : public Borders {
 public:
  Member(Pipeline& pipeline, int64_t number) : pipeline_(pipeline), number_(number) {}

  bool come_to(size_t next, size_t stages, Bundle& bundle) override {
    if (!at::GradMode::is_enabled()) return true;  // nothing is kept for a backward pass: any device computes all of it
    require(stages == pipeline_.names_.size(), "forward", "the network went through ", stages, " stages, expected the ",
            pipeline_.names_.size(), " of the one that was shared");
    has_come_ = true;
    if (next == 0) {
      ++passes_;
      ends_.clear();
    }
    if (!pipeline_.is_cut()) {
      measure(next, stages, bundle);
      return true;
    }
    if (next == stages)
      end_part(
          pipeline_.parts_here() - 1, [] {}, bundle);
    const auto found = std::ranges::find(pipeline_.first_, next);
    if (found == pipeline_.first_.end()) return true;
    const int64_t part = found - pipeline_.first_.begin();
    if (next > 0)
      end_part(
          part - 1, [this, part] { go_back_to(part - 1); }, bundle);
    Context::current().before_wait.reset();  // what lies behind the border does not wait for what lies in front of it
    pipeline_.crew_.come_to(number_, part);
    return true;
  }

  void backward(const at::Tensor& loss, const at::Tensor& gradient) {
    if (!pipeline_.is_cut()) begin_time(pipeline_.names_.empty() ? 0 : pipeline_.names_.size() - 1);
    const auto ends = std::exchange(ends_, {});
    if (passes_ != 1 || !go_back_in_halves(loss, gradient, ends)) torch::autograd::backward({loss}, {gradient});
  }

  void end_backward() {
    if (!pipeline_.is_cut() && !pipeline_.names_.empty()) add_time(0);
    passes_ = 0;
    pipeline_.crew_.compute_late(number_);
  }

  bool has_come() const { return has_come_; }
  const std::vector<double>& seconds() const { return seconds_; }
  const std::vector<double>& late_seconds() const { return late_seconds_; }

 private:
  using Ends = std::vector<NodePointer<Border>>;

  void end_part(int64_t part, std::function<void()> on_back, Bundle& bundle) {
    if (auto end = lay_border(bundle, std::move(on_back))) {
      ends_.resize(part + 1);
      ends_[part] = std::move(end);
    }
  }

  // Not where parts or the loss share a weight, whose gradients are added up in one pass.
  bool go_back_in_halves(const at::Tensor& loss, const at::Tensor& gradient, const Ends& ends) {
    const auto count = pipeline_.is_cut() ? pipeline_.parts_here() : std::ssize(pipeline_.names_);
    if (std::ssize(ends) != count || std::ranges::count(ends, nullptr) > 0) return false;
    std::vector<PartGraph> parts;
    parts.reserve(ends.size() + 1);
    for (size_t part = 0; part < ends.size(); ++part)
      parts.emplace_back(ends[part]->next_edges(), part > 0 ? ends[part - 1].get() : nullptr);
    parts.emplace_back(torch::autograd::edge_list{torch::autograd::impl::gradient_edge(loss)}, ends.back().get());
    if (PartGraph::share_weights(parts)) return false;
    for (const auto& end : ends) end->keep();
    std::vector<LateWeights> late(ends.size());
    parts.back().go_back({gradient}, late.back());
    for (size_t part = ends.size(); part-- > 0;) {
      if (const auto came = ends[part]->take()) {
        if (part + 1 < ends.size()) go_back_to(static_cast<int64_t>(part));
        parts[part].go_back(*came, late[part]);
      }
      if (pipeline_.is_cut())
        pipeline_.crew_.leave_late(number_, static_cast<int64_t>(part), std::move(late[part]));
      else
        measure_late(part, late[part]);
    }
    return true;
  }

  // A stage is a part until the cut is made.
  void go_back_to(int64_t part) {
    if (pipeline_.is_cut()) return pipeline_.crew_.go_back_to(number_, part);
    add_time(static_cast<size_t>(part));
  }

  void measure(size_t next, size_t stages, Bundle& bundle) {
    seconds_.resize(stages, 0);
    late_seconds_.resize(stages, 0);
    if (next == 0) {
      made_before_ = 0;  // what comes in may have a history
    } else {
      add_time(next - 1);
      refuse_way_around(goes_around_bundle(bundle, made_before_), pipeline_.names_[next - 1]);
      made_before_ = at::sequence_number::peek();
      const auto on_back = [this, next, stages] {
        if (next < stages) go_back_to(static_cast<int64_t>(next) - 1);
      };
      end_part(static_cast<int64_t>(next) - 1, on_back, bundle);
    }
    begin_time(next);
  }

  void measure_late(size_t stage, LateWeights& layers) {
    const double began = thread_seconds();
    for (; !layers.empty(); layers.pop_front()) layers.front()();
    const double took = thread_seconds() - began;
    late_seconds_[stage] += took;
    began_ += took;
  }

  void begin_time(size_t stage) {
    running_ = stage;
    began_ = thread_seconds();
  }

  // What has run until now belongs to the stage under way; `stage` is the next one.
  void add_time(size_t stage) {
    if (running_ < seconds_.size()) seconds_[running_] += thread_seconds() - began_;
    begin_time(stage);
  }

  Pipeline& pipeline_;
  const int64_t number_;
  bool has_come_ = false;
  int64_t passes_ = 0;                          // since the last backward pass
  Ends ends_;                                   // of the parts, in the last of these
  std::vector<double> seconds_, late_seconds_;  // [stage], until the cut is made
  uint64_t made_before_ = 0;                    // autograd's number when the stage under way began
  size_t running_ = 0;
  double began_ = 0;
};

Pipeline::Pipeline(Crew& crew, int64_t parts, std::vector<int64_t> devices)
    : crew_(crew), parts_(parts), devices_(std::move(devices)) {
  for (int64_t m = 0; m < crew.members(); ++m) members_.push_back(std::make_unique<Member>(*this, m));
}

Pipeline::~Pipeline() = default;

void Pipeline::take(const std::vector<std::shared_ptr<torch::nn::Module>>& networks) {
  require(names_.empty(), "share", "a second network was shared, and split p", parts_,
          " divides one, expected one network: --split data has several");
  names_ = make_divisible(networks, parts_);
}

Borders* Pipeline::borders(int64_t member) {
  return devices_.size() > 1 ? members_[member].get() : nullptr;
}

void Pipeline::backward(int64_t member, const at::Tensor& loss, const at::Tensor& gradient) {
  if (devices_.size() == 1) return torch::autograd::backward({loss}, {gradient});
  require(members_[member]->has_come(), "backward",
          "the network's forward() has gone through none of its stages, and split p", parts_,
          " cuts it between them, expected forward() to end with `return lockstep::fold<at::Tensor>(stages(), x);`");
  members_[member]->backward(loss, gradient);
}

void Pipeline::end_backward(int64_t member) {
  if (devices_.size() == 1) return;
  members_[member]->end_backward();
  crew_.end_pass(member);
}

void Pipeline::cut() {
  if (devices_.size() == 1 || is_cut()) return;
  // The middle of the replicas: one may have made the memory ready that all use afterwards.
  std::vector<double> costs, late;
  for (size_t stage = 0; stage < names_.size(); ++stage) {
    std::vector<double> seconds, of_late;
    for (const auto& member : members_)
      if (!member->seconds().empty()) {
        seconds.push_back(member->seconds()[stage]);
        of_late.push_back(member->late_seconds()[stage]);
      }
    late.push_back(seconds.empty() ? 0 : median(std::move(of_late)));
    costs.push_back(seconds.empty() ? 1 : 1e-9 + median(std::move(seconds)) + late.back());
  }
  first_ = cut_for_threads(costs, late, devices_);
  log_info("split p", parts_, ", by the time of stages in the first step: ", describe_cut(names_, costs, first_));
}

}  // namespace lockstep::parallel
