// SPDX-License-Identifier: Apache-2.0
// Copies of a network, whose gradients flow back to the original's parameters.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/module.h>

#include "lockstep/base/detail/first_line.h"
#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/tree.h"
#include "lockstep/parallel/functional.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::variable_list;

/// The node from P parameters to the R * P parameters of their copies, replica after replica: its backward pass adds
/// up the copies' gradients.
struct Broadcast : torch::autograd::Node {
  explicit Broadcast(const variable_list& originals) : parameters(originals.size()) {
    for (const at::Tensor& original : originals) devices.push_back(original.device());
  }

  variable_list apply(variable_list&& grads) override {
    const auto replicas = static_cast<int64_t>(grads.size() / parameters);
    const auto merge = [](at::Tensor& left, const at::Tensor& right) {
      if (!right.defined()) return;
      left = left.defined() ? left + right.to(left.device()) : right;
    };
    variable_list sums(parameters);
    for (size_t p = 0; p < parameters; ++p) {
      if (!task_should_compute_output(p)) continue;
      sums[p] = merge_as_tree(
          replicas, [&](int64_t r) { return grads[static_cast<size_t>(r) * parameters + p]; }, merge);
      if (sums[p].defined()) sums[p] = sums[p].to(devices[p]);
    }
    return sums;
  }

  size_t parameters;
  std::vector<at::Device> devices;  // of the originals
};

/// Makes the clone's parameters the outputs of the node. The clone's members are these very tensors, so they stay and
/// are given the original's values and a history. (A child that is no Cloneable was made anew, not copied.)
void attach(const variable_list& originals, const variable_list& copies, const NodePointer<Broadcast>& node) {
  for (size_t p = 0; p < copies.size(); ++p) {
    const bool tied = copies[p].grad_fn() != nullptr;  // to one that was attached already
    if (!tied) {
      copies[p].requires_grad_(false);
      copies[p].set_data(originals[p].detach().to(copies[p].device()));
    }
    if (!node) continue;
    if (originals[p].requires_grad() && !tied)
      torch::autograd::set_history(copies[p], node);
    else
      node->add_input_metadata(torch::autograd::Node::undefined_input());
  }
}

std::string clone_failure(const torch::nn::Module& module, const Devices& devices) {
  try {
    module.clone(devices[0].torch());
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// The innermost module that can't be cloned.
[[noreturn]] void name_culprit(const std::string& path, const torch::nn::Module& module, const Devices& devices,
                               const std::string& reason) {
  for (const auto& child : module.named_children())
    if (const std::string inner = clone_failure(*child.value(), devices); !inner.empty())
      name_culprit(path.empty() ? child.key() : path + "." + child.key(), *child.value(), devices, inner);
  fail("replicate", path.empty() ? "the module" : "submodule '" + path + "'", " of type ", module.name(),
       " can't be cloned, expected it to derive from torch::nn::Cloneable<...> (", first_line(reason), ")");
}

}  // namespace

std::vector<std::shared_ptr<torch::nn::Module>> replicate_module(const torch::nn::Module& module,
                                                                 const Devices& devices) {
  require(!devices.empty(), "replicate", "there are no devices, expected at least one");
  const variable_list parameters = module.parameters(), buffers = module.buffers();
  bool differentiable = false;
  for (const at::Tensor& parameter : parameters)
    differentiable |= at::GradMode::is_enabled() && parameter.requires_grad();
  NodePointer<Broadcast> node;
  if (differentiable) {
    node = make_node<Broadcast>(parameters);
    node->set_next_edges(torch::autograd::collect_next_edges(parameters));
  }

  // A clone draws initial values that are thrown away: not from the caller's numbers.
  const RandomScope scratch(RandomKey{});
  std::vector<std::shared_ptr<torch::nn::Module>> replicas;
  for (size_t r = 0; r < devices.size(); ++r) {
    const at::Device device = devices[r].torch();
    std::shared_ptr<torch::nn::Module> replica;
    try {
      replica = module.clone(device);
    } catch (const std::exception& error) {
      name_culprit("", module, devices, error.what());
    }
    const variable_list copies = replica->parameters(), copied_buffers = replica->buffers();
    require(copies.size() == parameters.size() && copied_buffers.size() == buffers.size(), "replicate", "the clone of ",
            module.name(), " has ", copies.size(), " parameters and ", copied_buffers.size(), " buffers, expected ",
            parameters.size(), " and ", buffers.size());
    attach(parameters, copies, node);
    for (size_t b = 0; b < buffers.size(); ++b) {
      const bool same = r == 0 && buffers[b].device() == device;
      copied_buffers[b].set_data(same ? buffers[b] : buffers[b].detach().to(device).clone());
    }
    norm::copy_marks(module, *replica);
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

}  // namespace lockstep::parallel
