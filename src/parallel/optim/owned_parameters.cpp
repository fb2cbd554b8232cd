// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/owned_parameters.h"

#include <map>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// A parameter's place: the network's number and its own in it.
using Place = std::pair<size_t, size_t>;
using Places = std::map<const c10::TensorImpl*, Place>;

Places places_of(const TeamState& team, int64_t member) {
  Places places;
  for (size_t n = 0; n < team.networks.size(); ++n) {
    const auto& parameters = team.networks[n]->parameters[member];
    for (size_t p = 0; p < parameters.size(); ++p) places[parameters[p].unsafeGetTensorImpl()] = {n, p};
  }
  return places;
}

std::vector<std::vector<Place>> places_of(const TeamState& team, int64_t member,
                                          const std::vector<ParameterGroup>& groups) {
  const Places places = places_of(team, member);
  std::vector<std::vector<Place>> found;
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& group = found.emplace_back();
    for (const auto& tensor : groups[g].parameters) {
      const auto place = places.find(tensor.unsafeGetTensorImpl());
      require(place != places.end(), "optimizer", "group ", g, " holds a tensor of sizes ",
              tensor.defined() ? text(tensor.sizes()) : "(undefined)",
              " that is no parameter of a network this replica shared, expected those that share() returned");
      group.push_back(place->second);
    }
  }
  return found;
}

}  // namespace

std::vector<at::Tensor> parameters_without_optimizer(const TeamState& team, int64_t member) {
  std::vector<at::Tensor> out;
  for (const auto& network : team.networks)
    for (size_t p = 0; p < network->has_optimizer.size(); ++p)
      if (!network->has_optimizer[p] && network->parameters[member][p].requires_grad())
        out.push_back(network->parameters[member][p]);
  return out;
}

std::vector<OptimizedParameter> take_parameters(const TeamState& team,
                                                std::span<const std::vector<ParameterGroup>* const> groups) {
  const auto places = places_of(team, 0, *groups[0]);
  for (size_t m = 1; m < groups.size(); ++m)
    require(places_of(team, static_cast<int64_t>(m), *groups[m]) == places, "optimizer",
            "replicas have passed different parameters, expected the same groups on all");
  std::vector<OptimizedParameter> taken;
  for (size_t g = 0; g < places.size(); ++g)
    for (const auto& [n, p] : places[g]) {
      SharedNetwork& network = *team.networks[n];
      // The first network's names are its own, so that a checkpoint of one network reads as torch's would.
      const std::string name = (n == 0 ? "" : text(n, ".")) + network.names[p];
      require(!network.has_optimizer[p], "optimizer", name, " has an optimiser already, expected one a parameter");
      require(network.parameters[0][p].requires_grad(), "optimizer", name,
              " requires no gradient, expected parameters that do");
      network.has_optimizer[p] = true;
      OptimizedParameter parameter;
      parameter.name = name;
      parameter.weight = network.weights.view(static_cast<int64_t>(p));
      for (int64_t m = 0; m < team.members(); ++m) parameter.leaves.push_back(network.parameters[m][p]);
      parameter.group = static_cast<int64_t>(g);
      taken.push_back(std::move(parameter));
    }
  require(!taken.empty(), "optimizer",
          "there is no parameter to update: expected a shared network with parameters "
          "that require a gradient and have no optimiser yet");
  return taken;
}

}  // namespace lockstep::parallel
