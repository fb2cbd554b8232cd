// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::simulation {

/// A training of a few steps on a tiny network.
struct Recipe {
  int64_t replicas = 2;
  bool batch_norm = false;  // synchronised
  bool divides_state = false;
  int64_t steps = 2;
  bool operator<(const Recipe& other) const;
};

/// The weights that come out on this process, as text.
std::string train(const Recipe& recipe, const comm::Group& group, const std::vector<int64_t>& blocks, int devices);

}  // namespace lockstep::simulation
