// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/late_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/backward_order.h"
#include "parallel/split/graph_walk.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

bool is_leaf(const Node* node) {
  return dynamic_cast<const AccumulateGrad*>(node) != nullptr;
}

// Whether each gradient has a kernel of its own. A batch norm's, say, have not: one kernel gives all of them.
bool has_kernel_a_gradient(const Node& node) {
  static constexpr std::array kNames{"ConvolutionBackward0", "AddmmBackward0", "MmBackward0"};
  return dynamic_cast<const KernelAGradient*>(&node) != nullptr || std::ranges::count(kNames, node.name()) > 0;
}

edge_list edges_to(const std::vector<Node*>& nodes) {
  edge_list edges;
  for (Node* node : nodes) edges.emplace_back(node->getptr(), 0);
  return edges;
}

/// Where a pass begins that has no gradient for some of its ends: autograd takes only such roots as have one.
struct Start : Node {
  Start(edge_list ends, variable_list given) : Node(std::move(ends)), gradients(std::move(given)) {
    add_input_metadata(root);
  }
  variable_list apply(variable_list&&) override { return gradients; }

  const at::Tensor root = at::ones({});
  const variable_list gradients;
};

void run_backward(const edge_list& from, const variable_list& gradients, bool keep_graph, const edge_list& to) {
  if (!std::ranges::all_of(gradients, &at::Tensor::defined)) {
    const auto start = make_node<Start>(from, gradients);
    return run_backward({{start, 0}}, {start->root}, keep_graph, to);
  }
  Engine::get_default_engine().execute(from, gradients, keep_graph, /*create_graph=*/false, /*accumulate_grad=*/true,
                                       to);
}

/// A layer whose weights are put off: it keeps the gradients that come to it.
class Layer {
 public:
  Layer(Node* node, const std::vector<Node*>& leaves) : node_(node->getptr()), leaves_(edges_to(leaves)) {
    node->add_pre_hook(std::make_unique<Hook>(gradients_));
  }

  void compute() {
    const auto gradients = gradients_->value_or(variable_list());
    gradients_->emplace();  // this pass comes over the hook, too
    edge_list from;
    variable_list given;
    for (size_t g = 0; g < gradients.size(); ++g)
      if (gradients[g].defined()) {
        from.emplace_back(node_, static_cast<uint32_t>(g));
        given.push_back(gradients[g]);
      }
    if (!from.empty()) run_backward(from, given, /*keep_graph=*/false, leaves_);
  }

 private:
  using Kept = std::optional<variable_list>;

  struct Hook : torch::autograd::FunctionPreHook {
    explicit Hook(std::shared_ptr<Kept> given) : kept(std::move(given)) {}
    variable_list operator()(const variable_list& gradients) override {
      if (!*kept) *kept = gradients;
      return gradients;
    }
    const std::shared_ptr<Kept> kept;
  };

  const std::shared_ptr<Kept> gradients_ = std::make_shared<Kept>();
  const decltype(Edge::function) node_;
  const edge_list leaves_;
};

}  // namespace

PartGraph::PartGraph(edge_list ends, Node* beginning) : ends_(std::move(ends)), beginning_(beginning) {
  if (beginning_ != nullptr) leads_back_[beginning_] = true;
  for (const Edge& end : ends_)
    if (end.function != nullptr) visit(end.function.get());
  for (Node* node : nodes_)
    if (leads_back_[node])
      for (const Edge& edge : node->next_edges())
        if (Node* const next = edge.function.get(); next != nullptr && !leads_back_[next]) own(node, next);
  for (const Edge& end : ends_)
    if (Node* const node = end.function.get(); node != nullptr && !leads_back_[node]) own(nullptr, node);
}

void PartGraph::visit(Node* from) {
  std::vector<std::pair<Node*, size_t>> way;
  const auto enter = [&](Node* node) {
    if (leads_back_.try_emplace(node, false).second) way.emplace_back(node, 0);
  };
  for (enter(from); !way.empty();) {
    Node* const node = way.back().first;
    if (const size_t edge = way.back().second++; edge < node->num_outputs()) {
      if (Node* const next = node->next_edge(edge).function.get()) enter(next);
      continue;
    }
    way.pop_back();
    nodes_.push_back(node);
    if (is_leaf(node)) leaves_.push_back(node);
    leads_back_[node] = std::ranges::any_of(node->next_edges(), [&](const Edge& edge) {
      return edge.function != nullptr && leads_back_[edge.function.get()];
    });
  }
}

// From a node that leads to nothing but leaves.
void PartGraph::own(Node* owner, Node* from) {
  any_node_from({from}, [&](Node* node) {
    if (is_leaf(node) && owners_[node].insert(owner).second) leaves_of_[owner].push_back(node);
    return false;
  });
}

// None where it shares one of them.
std::vector<Node*> PartGraph::own_leaves(Node* node) const {
  const auto found = leaves_of_.find(node);
  if (found == leaves_of_.end()) return {};
  const bool shares = std::ranges::any_of(found->second, [&](Node* leaf) { return owners_.at(leaf).size() > 1; });
  return shares ? std::vector<Node*>() : found->second;
}

bool PartGraph::share_weights(std::span<const PartGraph> parts) {
  std::unordered_set<const Node*> known;
  for (const PartGraph& part : parts)
    for (const Node* leaf : part.leaves_)
      if (!known.insert(leaf).second) return true;
  return false;
}

void PartGraph::go_back(const variable_list& gradients, LateWeights& late) const {
  if (beginning_ == nullptr) return run_backward(ends_, gradients, /*keep_graph=*/false, {});
  std::unordered_set<Node*> put_off, layers;
  LateWeights found;
  for (Node* node : nodes_) {
    if (!leads_back_.at(node) || !has_kernel_a_gradient(*node)) continue;
    const auto leaves = own_leaves(node);
    if (leaves.empty()) continue;
    found.push_front([layer = std::make_shared<Layer>(node, leaves)] { layer->compute(); });
    layers.insert(node);
    put_off.insert(leaves.begin(), leaves.end());
  }
  std::vector<Node*> to{beginning_};
  for (Node* leaf : leaves_)
    if (!put_off.contains(leaf)) to.push_back(leaf);
  run_backward(ends_, gradients, /*keep_graph=*/true, edges_to(to));
  // What the second half does not need is let go, as autograd does in a pass that keeps nothing.
  for (Node* node : nodes_)
    if (leads_back_.at(node) && !layers.contains(node)) node->release_variables();
  std::ranges::move(found, std::back_inserter(late));  // first the last layer, as in an undivided pass
}

}  // namespace lockstep::parallel
