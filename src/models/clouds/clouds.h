// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/models/registry.h"

/// What the rest of this layer asks of networks of clouds. A build without clouds (LOCKSTEP_CLOUDS=OFF) has
/// no_clouds.cpp in place of all other sources of this folder.
namespace lockstep::models {

/// The standard deviation of weights that begin in d2l's way, of any network.
inline constexpr double kD2lDeviation = 0.01;

/// The networks of clouds, for builtin().
std::vector<Entry> cloud_networks();

/// What an error on an unknown network adds: that those of clouds were left out of this build, or nothing.
const char* note_on_networks();

/// Whether the module is a sparse layer, whose parameters [1, C] are biases, scales and shifts in spite of their two
/// dimensions. If it is, its weights are drawn.
bool draw_sparse(torch::nn::Module& module, const std::string& how);

}  // namespace lockstep::models
