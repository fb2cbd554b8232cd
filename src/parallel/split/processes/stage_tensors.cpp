// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/stage_tensors.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/watched_operations.h"
#include "lockstep/context/draws.h"
#include "parallel/split/border.h"
#include "parallel/split/graph_walk.h"
#include "parallel/split/pipeline.h"
#include "parallel/split/processes/messages/bundle_parcel.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::variable_list;
using TensorSet = std::set<const c10::TensorImpl*>;

/// Puts the inputs of all operations into the set.
class Looking : public OperationWatcher {
 public:
  explicit Looking(TensorSet& into) : into_(into), here_(*this) {}

  bool before(const c10::OperatorHandle& operation, torch::jit::Stack& stack) override {
    each_tensor(operation, stack, [&](const at::Tensor& tensor) { into_.insert(tensor.unsafeGetTensorImpl()); });
    return false;
  }

 private:
  TensorSet& into_;
  const Watching here_;
};

/// What the graph behind a bundle begins at. Operations that don't go through the dispatcher are seen in it, too.
variable_list leaves_of(const Bundle& bundle) {
  std::vector<torch::autograd::Node*> starts;
  for (const at::Tensor& tensor : bundle.tensors())
    if (tensor.defined()) starts.push_back(tensor.grad_fn().get());
  variable_list leaves;
  any_node_from(starts, [&](torch::autograd::Node* node) {
    if (auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) leaves.push_back(leaf->variable);
    return false;
  });
  return leaves;
}

/// Seconds of the pass back to the leaves, which keep no gradient of it.
double backward_seconds(const Bundle& bundle, const variable_list& leaves) {
  variable_list outputs, gradients;
  for (const at::Tensor& tensor : bundle.tensors())
    if (tensor.defined() && tensor.requires_grad()) {
      outputs.push_back(tensor);
      gradients.push_back(at::ones_like(tensor));
    }
  if (outputs.empty() || leaves.empty()) return 0;
  const double begin = thread_seconds();
  torch::autograd::grad(outputs, leaves, gradients, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
  return thread_seconds() - begin;
}

/// The network in eval mode, on a thread that runs no replica; afterwards all is as it was.
class Apart {
 public:
  explicit Apart(torch::nn::Module& network) : context_(Context::current()) {
    for (const auto& module : network.modules()) modes_.emplace_back(module, module->is_training());
    network.eval();
    Context::current() = {.draws = &draws_, .images = context_.images, .slices = context_.slices};
  }
  ~Apart() {
    Context::current() = context_;
    for (const auto& [module, trained] : modes_) module->train(trained);
  }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  const Context context_;
  Draws draws_{RandomKey{0}};
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

// Each stage's graph is its own: it begins with what comes in. What occurs twice still does.
void cut_off(Bundle& bundle, bool copies) {
  const auto given = bundle.tensors();
  auto tensors = given;
  for (size_t t = 0; t < given.size(); ++t) {
    const auto same = std::ranges::find_if(given, [&](const at::Tensor& one) { return one.is_same(given[t]); });
    if (same < given.begin() + static_cast<ptrdiff_t>(t))
      tensors[t] = tensors[same - given.begin()];
    else if (given[t].defined())
      tensors[t] = (copies ? given[t].detach().clone() : given[t].detach()).requires_grad_(given[t].requires_grad());
  }
  bundle.replace_tensors(tensors);
  lay_border(bundle, [] {});  // a stage may write to what comes in, but not to a leaf
}

// Maps between sparse tensors are made again each time, as they are in a step.
std::vector<StageLook> look_once(const std::vector<Stage>& stages, const Bundle& given,
                                 const std::function<void(size_t)>& before, const std::function<void()>& after) {
  Bundle bundle = apart(given);
  variable_list input;
  std::vector<StageLook> looks;
  for (const Stage& stage : stages) {
    StageLook& look = looks.emplace_back(StageLook{stage.name});
    const uint64_t begin_number = at::sequence_number::peek();
    cut_off(bundle, looks.size() == 1);  // the first stage may write to its input
    if (looks.size() == 1) input = bundle.tensors();
    before(looks.size() - 1);
    const double begin = thread_seconds();
    {
      const Looking looking(look.tensors);
      stage.run(bundle);
    }
    const double forward = thread_seconds() - begin;
    const bool uses_input =
        looks.size() > 1 && std::ranges::any_of(input, [&](const at::Tensor& tensor) {
          return tensor.defined() && tensor.is_floating_point() && look.tensors.contains(tensor.unsafeGetTensorImpl());
        });
    refuse_way_around(uses_input || goes_around_bundle(bundle, begin_number), stage.name);
    const variable_list leaves = leaves_of(bundle);
    for (const at::Tensor& leaf : leaves) look.tensors.insert(leaf.unsafeGetTensorImpl());
    look.seconds = forward + backward_seconds(bundle, leaves);
    const CrossingBytes crossing = crossing_of(bundle);
    look.crossing_bytes = crossing.handed_bytes + crossing.returned_bytes;
    for (const std::string& name : bundle.names())
      if (bundle.type(name).pack == nullptr) look.other = name;
    after();
  }
  return looks;
}

}  // namespace

std::vector<StageLook> look_at_stages(torch::nn::Module& network, const Bundle& bundle, UnfilledWeights& unfilled) {
  const Apart apart(network);
  const at::AutoGradMode with_graph(true);
  const auto stages = stages_in(network);
  const auto parameters = network.parameters();
  const auto look = [&] {
    UnfilledWeights::Loan loan(unfilled);
    std::vector<StageLook> looks(stages.size());
    // Memory is made ready in the first pass, whose time says nothing.
    for (int pass = 0; pass < 2; ++pass)
      looks = look_once(
          stages, bundle,
          [&](size_t stage) {
            for (const at::Tensor& parameter : parameters)
              if (looks[stage].tensors.contains(parameter.unsafeGetTensorImpl())) unfilled.fill(parameter);
          },
          [&] { loan.give_back(); });
    return looks;
  };
  try {
    return look();
  } catch (const c10::Error&) {  // a stage asks for a weight's memory by other ways than an operation's
    for (const at::Tensor& parameter : parameters) unfilled.fill(parameter);
    return look();
  }
}

}  // namespace lockstep::parallel
