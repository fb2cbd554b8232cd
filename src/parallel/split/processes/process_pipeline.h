// SPDX-License-Identifier: Apache-2.0
// A network whose parts are processes: each holds its own part, and replicas go through them one behind another.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/context/detail/borders.h"
#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/stages.h"
#include "parallel/crew/crew.h"
#include "parallel/split/processes/messages/part_links.h"
#include "parallel/split/processes/process_cut.h"

namespace lockstep::parallel {

/// Every process of a copy runs the same replicas, with the same code and the same shares of data. A stage runs in its
/// part's process alone: the others pass over it. What a part hands on goes to the next one, and what the last part
/// gives goes to all, so that each process has the network's output and computes the same loss. Backwards, a node of
/// autograd in front of that output waits for the gradients that the next part sends, in place of computing them.
///
/// A replica's thread gives its permit up while it waits for another part, so the crew's rules (crew.h) make 1F1B of
/// it: a part has no more replicas in flight than there are devices from it on, and takes another as soon as it may.
/// Gradients of weights are left for when the device would be idle (late_weights.h).
/// Messages of a replica have tags of their own, so replicas need no order among each other.
///
/// The first pass finds out which stage uses which weights, and decides on the cut. Until then weights that are drawn
/// wait for their values, and process 0 fills them a stage at a time (unfilled_weights.h).
class ProcessPipeline {
 public:
  /// `messages`: of all processes.
  ProcessPipeline(Crew& crew, const PartPlace& place, comm::Group messages);
  ProcessPipeline(const ProcessPipeline&) = delete;
  ProcessPipeline& operator=(const ProcessPipeline&) = delete;
  ~ProcessPipeline();

  /// The one network that is divided, as all members have it, and its parameters, tied ones once.
  void take(const std::vector<std::shared_ptr<torch::nn::Module>>& networks, const std::vector<at::Tensor>& parameters);

  /// What a member's thread goes through between stages.
  Borders* borders(int64_t member);
  /// From a loss back, and what is left to do when it is over, whether there was one or not.
  void backward(int64_t member, const at::Tensor& loss, const at::Tensor& gradient);
  void end_backward(int64_t member);
  /// A member has done all it had to do: returns when what it sent is on its way.
  void leave(int64_t member);

  /// Where no replica here has gone through the network yet: learns what the others have decided.
  void learn_cut();
  /// None before.
  const ProcessCut* cut() const { return cut_.first.empty() ? nullptr : &cut_; }
  const PartPlace& place() const { return place_; }
  /// Those that this process does not need to hold, as far as is known.
  UnfilledWeights& unfilled() { return unfilled_; }

 private:
  class Member;
  class Inlet;
  class Outlet;

  void decide(int64_t member, const Bundle* bundle);
  void fill_own();

  Crew& crew_;
  const PartPlace place_;
  const comm::Group messages_;
  std::vector<std::shared_ptr<torch::nn::Module>> networks_;  // one a member
  std::vector<at::Tensor> parameters_;                        // of member 0
  UnfilledWeights unfilled_;
  size_t stages_ = 0;
  std::mutex deciding_;
  ProcessCut cut_;  // set under `deciding_`; every member has been there before it reads it
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace lockstep::parallel
