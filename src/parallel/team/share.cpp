// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/share.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/detail/broadcast_text.h"
#include "parallel/team/agreement.h"

namespace lockstep::parallel {
namespace {

using torch::nn::Module;

struct Parameters {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

// Tied weights are one tensor under several names: it counts once, under the first.
Parameters parameters_of(const Module& network) {
  Parameters out;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& item : network.named_parameters())
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      out.names.push_back(item.key());
      out.tensors.push_back(item.value());
    }
  return out;
}

// A network made outside run() comes from every replica: the first keeps it, the others get clones.
void clone_common(std::vector<std::shared_ptr<Module>>& networks) {
  std::set<const Module*> seen;
  for (auto& network : networks) {
    require(network != nullptr, "share", "the network is empty, expected a module");
    if (seen.insert(network.get()).second) continue;
    try {
      const auto original = network;
      network = original->clone();
      require(typeid(*network) == typeid(*original), "clone", "it gives a ", network->name(),
              ", expected its own type");
      norm::copy_marks(*original, *network);
      const auto from = original->parameters(), to = network->parameters();  // clones are not frozen
      for (size_t p = 0; p < to.size(); ++p) to[p].set_requires_grad(from[p].requires_grad());
    } catch (const std::exception& error) {
      fail("share", "all replicas passed the same ", network->name(), ", which can't be cloned (", error.what(),
           "): make one inside run() for each replica, or derive it from torch::nn::Cloneable");
    }
  }
}

bool has_convolutions(const Module& network) {
  for (const auto& module : network.modules())
    if (module->as<torch::nn::Conv2d>() || module->as<torch::nn::Conv3d>() ||
        module->as<torch::nn::ConvTranspose2d>() || module->as<torch::nn::ConvTranspose3d>())
      return true;
  return false;
}

at::MemoryFormat format_of(const Module& network, MemoryFormat format) {
  const bool last =
      format == MemoryFormat::automatic ? has_convolutions(network) : format == MemoryFormat::channels_last;
  return last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

void check_alike(const Parameters& mine, const Parameters& first) {
  require(mine.names == first.names, "share", "replicas have networks with other parameters (", mine.names.size(),
          " and ", first.names.size(), "), expected the same names on all");
  for (size_t p = 0; p < mine.tensors.size(); ++p)
    require(mine.tensors[p].sizes() == first.tensors[p].sizes() &&
                mine.tensors[p].scalar_type() == first.tensors[p].scalar_type(),
            "share", mine.names[p], " is ", mine.tensors[p].scalar_type(), mine.tensors[p].sizes(),
            " on one replica and ", first.tensors[p].scalar_type(), first.tensors[p].sizes(),
            " on another, expected the same on all");
}

void copy_buffers(const Module& from, const Module& to) {
  const auto source = from.buffers(), target = to.buffers();
  require(source.size() == target.size(), "share", "replicas have networks with ", source.size(), " and ",
          target.size(), " buffers, expected the same on all");
  const at::NoGradGuard no_grad;
  for (size_t b = 0; b < source.size(); ++b)
    if (source[b].defined() && !source[b].is_same(target[b])) target[b].copy_(source[b]);
}

// named_parameters() puts names together: 60 of them took tens of microseconds each step.
struct Peek : Module {
  static const torch::OrderedDict<std::string, at::Tensor>& parameters(const Module& module) {
    return module.*&Peek::parameters_;
  }
};

void watch(const Module& module, std::vector<WatchedModule>& into) {
  WatchedModule watched{&module, {}, {}};
  for (const auto& child : module.children()) watched.children.push_back(child.get());
  for (const auto& item : Peek::parameters(module)) watched.parameters.push_back(item.value().unsafeGetTensorImpl());
  into.push_back(std::move(watched));
  for (const auto& child : module.children()) watch(*child, into);
}

bool is_unchanged(const WatchedModule& watched) {
  const auto& parameters = Peek::parameters(*watched.module);
  if (parameters.size() != watched.parameters.size()) return false;
  for (size_t p = 0; p < watched.parameters.size(); ++p)
    if (parameters[p].value().unsafeGetTensorImpl() != watched.parameters[p]) return false;
  return std::ranges::equal(watched.module->children(), watched.children, {},
                            [](const std::shared_ptr<Module>& child) { return child.get(); });
}

// A weight stays unfilled where all processes are to fill it with the same.
std::vector<bool> agree_on_unfilled(const TeamState& team, const std::vector<at::Tensor>& parameters) {
  std::vector<bool> unfilled(parameters.size(), false);
  if (!team.process_pipeline) return unfilled;
  UnfilledWeights& waiting = team.process_pipeline->unfilled();
  std::string recipes;
  for (const at::Tensor& parameter : parameters) recipes += waiting.recipe(parameter) + '\n';
  std::istringstream first(broadcast_text(team.everyone, recipes, 0));
  const auto differs = at::zeros({static_cast<int64_t>(parameters.size())}, at::kLong);
  auto* const other = differs.mutable_data_ptr<int64_t>();
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::string line;
    std::getline(first, line);
    const std::string mine = waiting.recipe(parameters[p]);
    other[p] = mine.empty() || mine != line;
  }
  team.everyone.all_reduce(differs, ReduceOp::max).wait();
  for (size_t p = 0; p < parameters.size(); ++p)
    if (!(unfilled[p] = other[p] == 0)) waiting.fill(parameters[p]);
  return unfilled;
}

// Replica 0 is on process 0.
void broadcast(const TeamState& team, const SharedNetwork& shared, const std::vector<bool>& unfilled) {
  if (team.everyone.size() == 1) return;
  comm::TensorList tensors;
  if (std::ranges::count(unfilled, true) == 0) {
    for (size_t r = 0; r < shared.weights.layout().rows().size(); ++r)
      tensors.push_back(shared.weights.row(static_cast<int64_t>(r)));
  } else {
    for (size_t p = 0; p < unfilled.size(); ++p)
      if (!unfilled[p]) tensors.push_back(shared.weights.view(static_cast<int64_t>(p)));
  }
  for (const auto& buffer : shared.networks[0]->buffers())
    if (buffer.defined()) tensors.push_back(buffer.detach());
  if (!tensors.empty()) team.everyone.broadcast(tensors, 0).wait();
}

}  // namespace

std::unique_ptr<SharedNetwork> share_networks(const TeamState& team, std::vector<std::shared_ptr<Module>> networks,
                                              const ShareOptions& options) {
  clone_common(networks);
  for (const auto& network : networks) network->to(team.device);
  auto shared = std::make_unique<SharedNetwork>();
  shared->networks = std::move(networks);
  const at::MemoryFormat format = format_of(*shared->networks[0], options.memory_format);
  agree(team, "share", facts_of(*shared->networks[0], format));
  const Parameters first = parameters_of(*shared->networks[0]);
  shared->names = first.names;
  const std::vector<bool> unfilled = agree_on_unfilled(team, first.tensors);
  shared->weights = FlatBuffer::flatten(first.tensors, format);
  broadcast(team, *shared, unfilled);
  std::map<size_t, at::Tensor> places;
  for (size_t p = 0; p < unfilled.size(); ++p)
    if (unfilled[p])
      places[p] =
          team.process_pipeline->unfilled().placed(first.tensors[p], shared->weights.view(static_cast<int64_t>(p)));
  for (const auto& network : shared->networks) {
    const Parameters mine = parameters_of(*network);
    check_alike(mine, first);
    shared->weights.point_data(mine.tensors);
    for (const auto& [p, place] : places) mine.tensors[p].set_data(place);
    copy_buffers(*shared->networks[0], *network);
    shared->parameters.push_back(mine.tensors);
    watch(*network, shared->watched.emplace_back());
  }
  if (team.process_pipeline) team.process_pipeline->unfilled().close();
  shared->has_optimizer.assign(first.tensors.size(), false);
  return shared;
}

void keep_part(const SharedNetwork& network, const ProcessCut& cut, int64_t part) {
  const at::NoGradGuard no_grad;
  for (size_t p = 0; p < network.names.size(); ++p) {
    if (ProcessCut::holds(part, cut.parameters[p])) continue;
    const at::Tensor& view = network.weights.view(static_cast<int64_t>(p));
    const at::Tensor none = at::full({}, std::numeric_limits<double>::quiet_NaN(), view.options());
    for (const auto& parameters : network.parameters) parameters[p].set_data(none.expand(view.sizes()));
    give_back_memory(view);
  }
}

std::vector<std::pair<std::string, at::Tensor>> held_tensors(const TeamState& team, const torch::nn::Module& network,
                                                             bool parameters) {
  const ProcessCut* const cut = team.process_pipeline ? team.process_pipeline->cut() : nullptr;
  std::vector<std::pair<std::string, at::Tensor>> out;
  if (parameters) {
    const auto& names = team.networks[0]->names;  // a tied parameter has the owner of its first name
    std::map<const c10::TensorImpl*, int64_t> owners;
    for (const auto& item : network.named_parameters()) {
      if (!item.value().defined()) continue;
      const auto place = std::ranges::find(names, item.key());
      if (cut != nullptr && place != names.end())
        owners[item.value().unsafeGetTensorImpl()] = cut->parameters[place - names.begin()];
      if (cut == nullptr || team.saves(owners[item.value().unsafeGetTensorImpl()]))
        out.emplace_back(item.key(), item.value());
    }
  }
  size_t number = 0;
  for (const auto& item : network.named_buffers()) {
    const size_t buffer = number++;
    if (item.value().defined() && (cut == nullptr || team.saves(cut->buffers[buffer])))
      out.emplace_back(item.key(), item.value());
  }
  return out;
}

void check_unchanged(const SharedNetwork& network, int64_t member) {
  if (std::ranges::all_of(network.watched[member], is_unchanged)) return;
  // A module that came or went need not bring or take a parameter.
  const auto now = parameters_of(*network.networks[member]).tensors;
  const auto& then = network.parameters[member];
  require(std::ranges::equal(now, then, [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); }), "step",
          "the network has ", now.size(), " parameters, ", then.size(),
          " when it was shared, and they must be the same ones: register every parameter before share()");
}

}  // namespace lockstep::parallel
