// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// The replicas of one step, as an operation sees them that needs them all: a synchronised batch norm, of any layer.
/// Whoever runs replicas sets it for the threads they run on; nobody passes it through a network's forward().
class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  /// The replica that this thread runs, in [0, replicas()).
  virtual int64_t replica() const = 0;
  virtual int64_t replicas() const = 0;

  /// Every replica's `mine` [n], one after another: [replicas, n], the same bits on each. Small tensors: everybody gets
  /// everything. Waits for the others; all replicas call it the same number of times in a step, with the same n and
  /// dtype. Throws Error where they differ, CommError or the failed replica's error where one cannot come.
  virtual at::Tensor all_gather(const at::Tensor& mine) = 0;

  /// Waits for what the others bring to an all_gather, and returns all of it.
  using Gathered = std::function<at::Tensor()>;

  /// all_gather in two halves, for whoever has something else to do in between: this one only brings `mine`. All
  /// replicas ask for the results, in the same order. Here nothing travels before that.
  virtual Gathered begin_all_gather(const at::Tensor& mine);

  /// Where one call of backward() runs the graphs of all replicas (one controller gathered their outputs), a node that
  /// waited for its peers in its backward pass would wait for ever. There the replicas meet in the forward pass instead
  /// and build one node over all of them, and autograd itself waits for all its gradients. False where each replica
  /// calls backward() for itself.
  virtual bool shares_backward() const { return false; }

  /// For such a backward pass: begins to gather the rows of all replicas, [replicas, n], given those of the replicas
  /// that share it. It may be called when these peers are gone.
  using GatherRows = std::function<Gathered(const at::Tensor& mine)>;
  virtual GatherRows gather_rows() const;

  /// Builds the output [i] of each replica i from what every replica brought, [replicas][n].
  using Joint = std::function<std::vector<at::Tensor>(const std::vector<std::vector<at::Tensor>>& brought)>;

  /// Calls the first replica's `joint` once, on one replica's thread, when all have come, and returns this replica's
  /// output. Only for peers that share their backward pass; waits and throws as all_gather does, or with joint's own
  /// error on every replica.
  virtual at::Tensor meet(const std::vector<at::Tensor>& mine, const Joint& joint);
};

/// The peers of this thread's replica; null where no replica runs.
Peers* current_peers() noexcept;

}  // namespace lockstep
