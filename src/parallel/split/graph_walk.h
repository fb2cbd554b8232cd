// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/function.h>

#include <unordered_set>
#include <vector>

namespace lockstep::parallel {

/// Goes from some nodes of autograd to all that they lead to, each once, until one `is_it`: whether one was. Null is no
/// node. What lies behind a node that `leads_on` is not true for isn't gone to.
template <class Predicate, class LeadsOn>
bool any_node_from(const std::vector<torch::autograd::Node*>& starts, const Predicate& is_it, const LeadsOn& leads_on) {
  std::vector<torch::autograd::Node*> open;
  std::unordered_set<torch::autograd::Node*> known;
  const auto add = [&](torch::autograd::Node* node) {
    if (node != nullptr && known.insert(node).second) open.push_back(node);
  };
  for (torch::autograd::Node* start : starts) add(start);
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (is_it(node)) return true;
    if (leads_on(node))
      for (const auto& edge : node->next_edges()) add(edge.function.get());
  }
  return false;
}
template <class Predicate>
bool any_node_from(const std::vector<torch::autograd::Node*>& starts, const Predicate& is_it) {
  return any_node_from(starts, is_it, [](const torch::autograd::Node*) { return true; });
}

}  // namespace lockstep::parallel
