// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep::models {

/// The ways to begin:
///   default   as the network was made: torch's way for each layer, He's for a ResNet, as torchvision has it
///   d2l       weights normal(0, 0.01), biases 0: Dive into Deep Learning's way in chapter 12.5
///   xavier    weights uniform in +-sqrt(6 / (fan in + fan out)), biases 0 (Glorot and Bengio 2010)
///   kaiming   weights normal(0, sqrt(2 / fan in)), biases 0 (He et al. 2015)
const std::vector<std::string>& initialisations();

/// Throws Error, with the nearest name, where there is no such way.
void check_initialisation(const std::string& how);

/// Draws every weight of two or more dimensions anew, in the order of the modules, and sets the biases beside them;
/// scales and shifts of norms stay, and the amplitudes of a Sinusoidal. The fans of a sparse kernel [K, Cin, Cout] are
/// K Cin and K Cout. Draws come from this thread's RandomScope where there is one (as inside Team::run,
/// so that all replicas begin alike), else from the default generator. Throws Error for an unknown way.
void initialise(torch::nn::Module& network, const std::string& how);

}  // namespace lockstep::models
