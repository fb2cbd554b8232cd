// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/border.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <ctime>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/autograd_node.h"
#include "parallel/split/graph_walk.h"

namespace lockstep::parallel {

using torch::autograd::Node;
using torch::autograd::variable_list;

Border::Border(std::function<void()> on_back, const variable_list& sources) : on_back_(std::move(on_back)) {
  for (const at::Tensor& source : sources) add_next_edge(torch::autograd::impl::gradient_edge(source));
}

variable_list Border::apply(variable_list&& gradients) {
  if (keeps_) {
    came_ = std::move(gradients);
    return variable_list(num_outputs());
  }
  on_back_();
  return std::move(gradients);
}

// A tensor that occurs twice gets one gradient, as its users' gradients are added up in one place without a border.
void give_history(Bundle& bundle, const std::function<NodePointer<Node>(const variable_list&)>& node_behind) {
  variable_list tensors = bundle.tensors(), sources, outputs;
  std::vector<int64_t> output_of(tensors.size(), -1);
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t].defined() || !tensors[t].requires_grad()) continue;
    const auto known =
        std::ranges::find_if(sources, [&](const at::Tensor& source) { return source.is_same(tensors[t]); });
    output_of[t] = known - sources.begin();
    if (known != sources.end()) continue;
    sources.push_back(tensors[t]);
    outputs.push_back(tensors[t].detach());
  }
  if (sources.empty()) return;
  torch::autograd::set_history(outputs, node_behind(sources));
  for (size_t t = 0; t < tensors.size(); ++t)
    if (output_of[t] >= 0) tensors[t] = outputs[output_of[t]];
  bundle.replace_tensors(tensors);
}

NodePointer<Border> lay_border(Bundle& bundle, std::function<void()> on_back) {
  NodePointer<Border> border;
  give_history(bundle,
               [&](const variable_list& sources) { return border = make_node<Border>(std::move(on_back), sources); });
  return border;
}

bool goes_around_bundle(const Bundle& made, uint64_t begin) {
  std::vector<Node*> ends;
  for (const at::Tensor& tensor : made.tensors())
    if (tensor.defined()) ends.push_back(tensor.grad_fn().get());
  return any_node_from(
      ends, [&](const Node* node) { return node->sequence_nr() < begin; },
      [](const Node* node) { return dynamic_cast<const Border*>(node) == nullptr; });
}

void refuse_way_around(bool goes_around, const std::string& stage) {
  require(
      !goes_around, "share", "stage '", stage,
      "' uses a tensor that a stage before it has and that is not in its bundle, expected the bundle to have all that "
      "crosses a cut: put the tensor there under a name of its own, or make one stage of both");
}

CrossingBytes crossing_of(const Bundle& bundle) {
  CrossingBytes out;
  std::unordered_set<const void*> known;
  for (const at::Tensor& tensor : bundle.tensors()) {
    if (!tensor.defined() || !known.insert(tensor.unsafeGetTensorImpl()).second) continue;
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    out.handed_bytes += bytes;
    ++out.handed_tensors;
    if (!tensor.requires_grad()) continue;
    out.returned_bytes += bytes;
    ++out.returned_tensors;
  }
  return out;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace lockstep::parallel
