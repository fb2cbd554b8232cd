// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/state_dict.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/fill_taker.h"

namespace lockstep::models {
namespace {

// "missing a, b, c and 12 more": enough to see what kind of mistake it is.
void list(std::vector<std::string>& parts, const char* what, const std::vector<std::string>& names) {
  constexpr size_t shown = 8;
  if (names.empty()) return;
  std::string part = what;
  for (size_t i = 0; i < names.size() && i < shown; ++i) part += (i == 0 ? " " : ", ") + names[i];
  if (names.size() > shown) part += text(" and ", names.size() - shown, " more");
  parts.push_back(std::move(part));
}

/// A sparse kernel of one offset is [Cin, Cout] or [1, Cin, Cout]: MinkowskiEngine has the second where there is a
/// stride, Lockstep never.
bool fits(const std::string& name, const at::Tensor& own, const at::Tensor& given) {
  if (given.sizes() == own.sizes()) return true;
  const at::Tensor &longer = given.dim() > own.dim() ? given : own, &shorter = given.dim() > own.dim() ? own : given;
  return (name == "kernel" || name.ends_with(".kernel")) && longer.dim() == 3 && longer.size(0) == 1 &&
         longer.sizes().slice(1) == shorter.sizes();
}

void check(const torch::nn::Module& network, const StateDict& own, const StateDict& state) {
  std::vector<std::string> missing, unexpected, other, parts;
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end() || !found->second.defined()) {
      if (!name.ends_with("num_batches_tracked")) missing.push_back(name);
    } else if (!fits(name, tensor, found->second)) {
      other.push_back(text(name, " ", found->second.sizes(), " where the network has ", tensor.sizes()));
    }
  }
  for (const auto& [name, tensor] : state)
    if (!own.contains(name)) unexpected.push_back(name);
  list(parts, "missing", missing);
  list(parts, "unexpected", unexpected);
  list(parts, "of another shape", other);
  if (parts.empty()) return;
  std::string message = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) message += "; " + parts[i];
  fail("load_state_dict", "the tensors are not those of ", network.name(), ": ", message);
}

}  // namespace

StateDict state_dict(const torch::nn::Module& network) {
  StateDict state;
  for (const auto& item : network.named_parameters()) state.emplace(item.key(), item.value().detach());
  for (const auto& item : network.named_buffers())
    if (item.value().defined()) state.emplace(item.key(), item.value().detach());
  return state;
}

void load_state_dict(const torch::nn::Module& network, const StateDict& state, const std::string& source) {
  const StateDict own = state_dict(network);
  check(network, own, state);
  FillTaker* const later = source.empty() ? nullptr : FillTaker::current();
  const auto parameters = network.named_parameters();
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end() || !found->second.defined()) continue;
    const at::Tensor given = found->second.reshape(tensor.sizes());
    const auto fill = [given](const at::Tensor& into) { into.copy_(given); };
    const at::Tensor* const parameter = parameters.find(name);
    if (later == nullptr || parameter == nullptr || !later->take(*parameter, text(source, ' ', name), fill))
      fill(tensor);
  }
}

}  // namespace lockstep::models
