// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

/// All that differs between the versions of torch that Lockstep is tested with: older ones hold a node of autograd by a
/// std::shared_ptr, newer ones by an intrusive pointer.
namespace lockstep {

inline constexpr bool nodes_are_shared =
    std::is_same_v<decltype(torch::autograd::Edge::function), std::shared_ptr<torch::autograd::Node>>;

template <class Node>
using NodePointer = std::conditional_t<nodes_are_shared, std::shared_ptr<Node>, c10::intrusive_ptr<Node>>;

template <class Node, class... Arguments>
NodePointer<Node> make_node(Arguments&&... arguments) {
  if constexpr (nodes_are_shared) {
    // torch's deleter, found by its argument: it frees a long chain of nodes without recursion.
    return NodePointer<Node>(new Node(std::forward<Arguments>(arguments)...), [](Node* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace lockstep
