// SPDX-License-Identifier: Apache-2.0
#include "models/clouds/clouds.h"

namespace lockstep::models {

std::vector<Entry> cloud_networks() {
  return {};
}

const char* note_on_networks() {
  return "; networks of point clouds were left out of this build (LOCKSTEP_CLOUDS=OFF)";
}

bool draw_sparse(torch::nn::Module& /*module*/, const std::string& /*how*/) {
  return false;
}

}  // namespace lockstep::models
