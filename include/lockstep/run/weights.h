// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/run/checkpoint.h"

namespace lockstep::run {

/// The weights in a value: those of a checkpoint, a plain dict of tensors (a state_dict), or a dict that holds one
/// under "state_dict", "model_state_dict" or "model". Throws Error, naming `name`, where there are none.
Tensors weights_in(const archive::Value& value, const std::string& name);
/// Of a file: last.pt, weights.pt, one that Python's torch.save wrote, or one of safetensors. A folder: its checkpoint,
/// else its weights.pt.
Tensors read_weights(const std::filesystem::path& file);

struct FoundWeights {
  Tensors weights;
  std::string checksums;  ///< tell it from another file of the name; none where Lockstep has not written it
};
/// The same, in the file's own pages where that can be (tensor_archive.h).
FoundWeights find_weights(const std::filesystem::path& file);

/// A plain dict of tensors, that Python reads with torch.load(..., weights_only=True) and load_state_dict, or
/// safetensors where the name ends so. Throws Error where it can't be written.
void write_weights(const std::filesystem::path& file, const Tensors& weights);

/// One SHA-256 over names, dtypes, shapes and bytes (in row-major order), in the order of names: the same for equal
/// weights, however and on whatever device they are stored.
std::string hash_of(const Tensors& weights);

}  // namespace lockstep::run
