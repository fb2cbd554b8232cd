// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/stages.h"

namespace lockstep::parallel {

/// Gives the bundle's tensors a node of autograd as their history, made of what they were: each with a gradient, once.
/// None is made where no tensor has one.
void give_history(
    Bundle& bundle,
    const std::function<NodePointer<torch::autograd::Node>(const torch::autograd::variable_list&)>& node_behind);

/// A node of autograd that passes gradients on as they come, after a call. Or it keeps them: then the backward pass
/// goes from border to border (late_weights.h).
class Border : public torch::autograd::Node {
 public:
  Border(std::function<void()> on_back, const torch::autograd::variable_list& sources);
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  /// From now on it keeps what comes to it, and makes no call.
  void keep() { keeps_ = true; }
  /// Hands over what it has kept.
  std::optional<torch::autograd::variable_list> take() { return std::exchange(came_, std::nullopt); }

 private:
  const std::function<void()> on_back_;
  bool keeps_ = false;
  std::optional<torch::autograd::variable_list> came_;
};

/// Lays a border behind the bundle's tensors: `on_back` runs when the backward pass comes to it. None is laid where no
/// tensor has a gradient.
NodePointer<Border> lay_border(Bundle& bundle, std::function<void()> on_back);

/// Whether what a stage has made hangs together with something from before `begin` by another way than through its
/// bundle: a residual, say, that a member of the module keeps. `begin` is autograd's number when the stage began,
/// before the border in front of it was laid.
bool goes_around_bundle(const Bundle& made, uint64_t begin);
void refuse_way_around(bool goes_around, const std::string& stage);

/// What crosses where a bundle goes to another process, each tensor once, and its gradients come back.
struct CrossingBytes {
  int64_t handed_bytes = 0, handed_tensors = 0;
  int64_t returned_bytes = 0, returned_tensors = 0;
};
CrossingBytes crossing_of(const Bundle& bundle);

/// Seconds that the calling thread has computed: waiting, and what else the machine does, is not in them.
double thread_seconds();

}  // namespace lockstep::parallel
