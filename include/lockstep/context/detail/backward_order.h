// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Of the nodes that are ready, autograd runs the one with the highest sequence number, and libtorch counts these up as
/// a thread makes nodes: what was made last runs first. A node that waits for other replicas leaves its thread idle,
/// unless there is work that may as well be done then. Weight gradients are: nothing in the backward pass needs them.
namespace lockstep {

/// For a node that tells other replicas something: it runs as soon as it is ready. Of two that are, the later made
/// first, as on every replica.
uint64_t early_node_number();

/// For a node that waits for other replicas.
uint64_t waiting_node_number();

/// For a node that nothing waits for: right before the thread's last node that waits, and after all that was made
/// since. Where none was made lately it is the next number, so that gradients of a long way are not kept for its end.
uint64_t deferred_node_number();

/// A node that computes each gradient by itself, and only those that are asked for: an extra pass may ask for the
/// others.
struct KernelAGradient {
  virtual ~KernelAGradient() = default;
};

}  // namespace lockstep
