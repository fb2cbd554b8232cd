// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>

#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/stages.h"

namespace lockstep::parallel {

/// Gives the bundle's tensors a node of autograd as their history, made of what they were: each with a gradient, once.
/// None is made where no tensor has one.
void give_history(
    Bundle& bundle,
    const std::function<NodePointer<torch::autograd::Node>(const torch::autograd::variable_list&)>& node_behind);

/// Lays a node of autograd behind the bundle's tensors, which passes their gradients on as they come. `on_back` runs
/// before, when the backward pass comes to it. Nothing is laid where no tensor has a gradient.
void lay_border(Bundle& bundle, std::function<void()> on_back);

/// What crosses where a bundle goes to another process, each tensor once, and its gradients come back.
struct CrossingBytes {
  int64_t handed_bytes = 0, handed_tensors = 0;
  int64_t returned_bytes = 0, returned_tensors = 0;
};
CrossingBytes crossing_of(const Bundle& bundle);

/// Seconds that the calling thread has computed: waiting, and what else the machine does, is not in them.
double thread_seconds();

}  // namespace lockstep::parallel
