// SPDX-License-Identifier: Apache-2.0
// A replica's backward pass, part by part, in two halves: what another part waits for comes first.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <deque>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "parallel/crew/crew.h"

namespace lockstep::parallel {

/// The second half: gradients of weights, layer by layer, for which nobody waits. Each may run on any thread, when a
/// device would be idle.
using LateWeights = std::deque<LateWork>;

/// What lies between two borders of a replica's graph.
class PartGraph {
 public:
  /// From where it ends back to `beginning`, the border's node, which the part behind waits for. Null: nobody waits.
  PartGraph(torch::autograd::edge_list ends, torch::autograd::Node* beginning);

  /// The first half: the gradients of what came into the part, from those at its ends. `beginning` runs. Put off are
  /// the weights of layers whose node computes each gradient with a kernel of its own: linear ones and convolutions.
  /// Each kernel runs once, on the same numbers, and each weight gets its gradient in one piece, so no bit is another
  /// one: a weight that several layers use is not put off.
  void go_back(const torch::autograd::variable_list& gradients, LateWeights& late) const;

  /// Whether a weight gets gradients from several of these: then they are one pass, in which they are added up.
  static bool share_weights(std::span<const PartGraph> parts);

 private:
  using Node = torch::autograd::Node;

  void visit(Node* from);
  void own(Node* owner, Node* from);
  std::vector<Node*> own_leaves(Node* node) const;

  const torch::autograd::edge_list ends_;
  Node* const beginning_;
  std::vector<Node*> nodes_;   // what a node leads to comes before it
  std::vector<Node*> leaves_;  // of these
  std::unordered_map<Node*, bool> leads_back_;
  std::unordered_map<Node*, std::vector<Node*>> leaves_of_;      // [node that leads back]
  std::unordered_map<Node*, std::unordered_set<Node*>> owners_;  // [leaf] nodes that lead back; null is an end
};

}  // namespace lockstep::parallel
