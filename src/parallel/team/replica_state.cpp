// SPDX-License-Identifier: Apache-2.0
// What replicas save, wherever in the team it lies.
#include "parallel/team/replica_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "parallel/optim/optimizer_state.h"
#include "parallel/team/share.h"

namespace lockstep::parallel {

std::map<std::string, at::Tensor> Replica::state_dict(const Optimizer& optimizer, bool wanted) {
  require(optimizer.state_ != nullptr, "state_dict", "the optimiser is empty, expected one made by optimizer()");
  TeamState& team = *state_->team;
  team.meet<bool>(state_->member, "state_dict", wanted, [&](std::span<const bool* const> all) -> CrewWork {
    const bool any = std::ranges::any_of(all, [](const bool* one) { return *one; });
    team.saved.assign(1, {});
    if (any || optimizer.state_->is_spread()) team.saved[0] = optimizer.state_->whole_state();
    team.join_parts(team.saved, {any});
    return {};
  });
  return wanted ? team.saved[0] : std::map<std::string, at::Tensor>{};
}

std::map<std::string, at::Tensor> Replica::state_dict(const torch::nn::Module& network, bool wanted) {
  TeamState& team = *state_->team;
  std::map<std::string, at::Tensor> mine;
  for (const auto& [name, tensor] : held_tensors(team, network, /*parameters=*/true)) {
    if (team.process_pipeline) team.process_pipeline->unfilled().fill(tensor);
    mine[name] = tensor.detach();
  }
  if (!team.has_process_parts()) return wanted ? mine : std::map<std::string, at::Tensor>{};
  return join(mine, wanted);
}

// As float64, which holds every value of a float and every count up to 2^53, so that one exchange has them all.
std::map<std::string, at::Tensor> Replica::differing_buffers(const torch::nn::Module& network, bool wanted) {
  TeamState& team = *state_->team;
  const auto buffers = held_tensors(team, network, /*parameters=*/false);
  std::vector<at::Tensor> flat;
  for (const auto& [name, buffer] : buffers) flat.push_back(buffer.detach().to(at::kCPU, at::kDouble).flatten());
  std::map<std::string, at::Tensor> out;
  auto rows = flat.empty() ? at::Tensor() : state_->peers.all_gather(at::cat(flat));
  int64_t at = 0;
  for (const auto& [name, buffer] : buffers) {
    const auto all = rows.narrow(1, at, buffer.numel());
    at += buffer.numel();
    if (!wanted && !team.has_process_parts()) break;
    if (all.eq(all.narrow(0, 0, 1)).all().item<bool>()) continue;
    auto sizes = buffer.sizes().vec();
    sizes.insert(sizes.begin(), replicas());
    out[name] = all.to(buffer.scalar_type()).reshape(sizes).contiguous();
  }
  return team.has_process_parts() ? join(out, wanted) : out;
}

std::map<std::string, at::Tensor> Replica::join(const std::map<std::string, at::Tensor>& mine, bool wanted) {
  using Offer = std::pair<const std::map<std::string, at::Tensor>&, bool>;
  TeamState& team = *state_->team;
  team.meet<Offer>(state_->member, "state_dict", {mine, wanted}, [&](std::span<const Offer* const> all) -> CrewWork {
    team.saved.clear();
    std::vector<bool> wishes;
    for (const Offer* one : all) {
      team.saved.push_back(one->first);
      wishes.push_back(one->second);
    }
    team.join_parts(team.saved, wishes);
    return {};
  });
  auto whole = std::move(team.saved[state_->member]);
  return wanted ? whole : std::map<std::string, at::Tensor>{};
}

}  // namespace lockstep::parallel
