// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace torch::nn {
class Module;
}

namespace lockstep::models {

/// A network's parameters and buffers by name, as torch's state_dict has them: "layer1.0.bn1.running_mean".
using StateDict = std::map<std::string, at::Tensor>;

/// Detached tensors that share the network's memory: clone() them to keep their values. Tied weights stand under each
/// of their names.
StateDict state_dict(const torch::nn::Module& network);

/// Copies the values into the network's tensors, which keep their dtype, device and memory format. On a network that
/// Replica::share has made one of several, the weights of all of this process's are set, and its own buffers.
///
/// A kernel of one offset may be [Cin, Cout] or [1, Cin, Cout], as MinkowskiEngine keeps that of a layer with a stride.
///
/// Throws Error that lists what is missing, unexpected or of another shape, and then changes nothing. A missing
/// "num_batches_tracked" is no error, as in torch: older files lack it.
///
/// Where weights wait for their values, as those of parts in other processes do, and `source` says where the state is
/// from, in all processes alike: weights take their values when they are used. The tensors must not change till then.
void load_state_dict(const torch::nn::Module& network, const StateDict& state, const std::string& source = "");

}  // namespace lockstep::models
