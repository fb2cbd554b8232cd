// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/process_cut.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "parallel/split/cut.h"
#include "parallel/split/processes/stage_tensors.h"

namespace lockstep::parallel {
namespace {

/// The stages that use a tensor, from the first to the last.
struct Use {
  size_t first, last;
};

std::optional<Use> use_of(const at::Tensor& tensor, const std::vector<StageLook>& looks) {
  std::optional<Use> use;
  for (size_t stage = 0; stage < looks.size(); ++stage)
    if (looks[stage].tensors.contains(tensor.unsafeGetTensorImpl())) use = Use{use ? use->first : stage, stage};
  return use;
}

/// Whether the network may be cut in front of each stage, and why not where it may not.
class Cuts {
 public:
  explicit Cuts(const std::vector<StageLook>& looks) : looks_(looks), reasons_(looks.size()) {
    for (size_t stage = 1; stage < looks.size(); ++stage)
      if (const std::string& other = looks[stage - 1].other; !other.empty())
        reasons_[stage] =
            text("'", looks[stage - 1].name, "' hands on '", other,
                 "', of a type that can't go to another process (a tensor, a sparse tensor or a field can)");
  }

  /// What changes in training is in one place: the stages that use it stay together.
  void tie(const std::string& name, const Use& use) {
    for (size_t stage = use.first + 1; stage <= use.last; ++stage)
      if (reasons_[stage].empty())
        reasons_[stage] = text("'", looks_[use.first].name, "' and '", looks_[use.last].name, "' share ", name);
  }

  /// A part has weights to train.
  void keep_with_weights(const std::vector<bool>& is_trained) {
    const std::vector<bool> may_begin = may_begin_part(is_trained);
    for (size_t stage = 1; stage < looks_.size(); ++stage)
      if (reasons_[stage].empty() && !may_begin[stage])
        reasons_[stage] =
            text("'", looks_[is_trained[stage] ? stage - 1 : stage].name, "' has no weights that are trained");
  }

  std::vector<size_t> choose(const std::vector<double>& seconds_a_byte) const {
    const auto parts = static_cast<int64_t>(seconds_a_byte.size()) + 1;
    std::vector<size_t> begins;
    std::vector<double> costs;
    std::vector<int64_t> crossing;
    for (size_t stage = 0; stage < looks_.size(); ++stage) {
      if (reasons_[stage].empty()) begins.push_back(stage);
      costs.push_back(looks_[stage].seconds + 1e-9);
      crossing.push_back(looks_[stage].crossing_bytes);
    }
    if (static_cast<int64_t>(begins.size()) < parts) {
      const auto reason = std::ranges::find_if(reasons_, [](const std::string& why) { return !why.empty(); });
      fail("split", "the network's stages can be divided over ", begins.size(), " processes, expected ", parts,
           " for split p", parts, reason == reasons_.end() ? "" : text(": ", *reason), ". Give each process --devices ",
           parts, " (its threads then divide the network), or use --split data");
    }
    return cut_evenly_at(begins, costs, std::vector<int64_t>(parts, 1), crossing, seconds_a_byte);
  }

 private:
  const std::vector<StageLook>& looks_;
  std::vector<std::string> reasons_;
};

/// A module's other buffers, such as a batch norm's counter, are where the tensors are of which a stage is known.
void follow_neighbours(const torch::nn::Module& network, std::map<const c10::TensorImpl*, int64_t>& owners) {
  for (const auto& module : network.modules()) {
    std::vector<at::Tensor> tensors = module->parameters(/*recurse=*/false);
    for (const at::Tensor& buffer : module->buffers(/*recurse=*/false)) tensors.push_back(buffer);
    std::optional<int64_t> owner;
    for (const at::Tensor& tensor : tensors)
      if (const auto found = owners.find(tensor.unsafeGetTensorImpl()); tensor.defined() && found != owners.end())
        owner = owner && *owner != found->second ? ProcessCut::kAll : found->second;
    for (const at::Tensor& buffer : module->buffers(/*recurse=*/false))
      if (owner && buffer.defined()) owners.emplace(buffer.unsafeGetTensorImpl(), *owner);
  }
}

}  // namespace

std::string ProcessCut::to_text() const {
  std::string out;
  for (const auto* list : {&first, &parameters, &buffers}) {
    out += text(list->size());
    for (const int64_t number : *list) out += text(' ', number);
    out += ' ';
  }
  return out;
}

ProcessCut ProcessCut::from_text(const std::string& text) {
  std::istringstream in(text);
  ProcessCut cut;
  for (auto* list : {&cut.first, &cut.parameters, &cut.buffers}) {
    size_t count = 0;
    in >> count;
    list->resize(count);
    for (int64_t& number : *list) in >> number;
  }
  return cut;
}

ProcessCut cut_for_processes(torch::nn::Module& network, const std::vector<at::Tensor>& parameters,
                             const Bundle& bundle, const std::vector<double>& seconds_a_byte,
                             UnfilledWeights& unfilled) {
  const size_t parts = seconds_a_byte.size() + 1;
  const std::vector<StageLook> looks = look_at_stages(network, bundle, unfilled);
  require(looks.back().other.empty(), "split", "the network gives '", looks.back().other,
          "', of a type that can't go to another process (a tensor, a sparse tensor or a field can): give each process "
          "--devices ",
          parts, " (its threads then divide the network), or use --split data");
  Cuts cuts(looks);
  const auto named_parameters = network.named_parameters();
  const auto named_buffers = network.named_buffers();
  for (const auto* list : {&named_parameters, &named_buffers})
    for (const auto& item : *list) {
      if (!item.value().defined() || (list == &named_parameters && !item.value().requires_grad())) continue;
      if (const auto use = use_of(item.value(), looks); use && use->first < use->last) cuts.tie(item.key(), *use);
    }
  std::vector<bool> is_trained(looks.size(), false);
  for (const auto& item : named_parameters)
    if (const auto use = use_of(item.value(), looks); use && item.value().requires_grad())
      for (size_t stage = use->first; stage <= use->last; ++stage) is_trained[stage] = true;
  cuts.keep_with_weights(is_trained);
  const std::vector<size_t> first = cuts.choose(seconds_a_byte);
  const auto part_of = [&](size_t stage) { return std::ranges::upper_bound(first, stage) - first.begin() - 1; };

  std::map<const c10::TensorImpl*, int64_t> owners;
  const auto own = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto use = use_of(tensor, looks);
    if (!use) return;
    const int64_t begin = part_of(use->first), end = part_of(use->last);
    owners[tensor.unsafeGetTensorImpl()] = begin == end ? begin : ProcessCut::kAll;
  };
  for (const at::Tensor& parameter : parameters) own(parameter);
  for (const auto& buffer : named_buffers) own(buffer.value());
  follow_neighbours(network, owners);
  const auto owner_of = [&](const at::Tensor& tensor) {
    const auto found = tensor.defined() ? owners.find(tensor.unsafeGetTensorImpl()) : owners.end();
    return found == owners.end() ? ProcessCut::kAll : found->second;
  };
  ProcessCut cut{.first = {first.begin(), first.end()}};
  for (const at::Tensor& parameter : parameters) cut.parameters.push_back(owner_of(parameter));
  for (const auto& buffer : named_buffers) cut.buffers.push_back(owner_of(buffer.value()));

  std::vector<std::string> names;
  std::vector<double> costs;
  for (const StageLook& look : looks) {
    names.push_back(look.name);
    costs.push_back(look.seconds + 1e-9);
  }
  log_info("split p", parts,
           ", a process a part, by the time of stages and what crosses: ", describe_cut(names, costs, first));
  return cut;
}

}  // namespace lockstep::parallel
