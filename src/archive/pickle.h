// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/archive/tensor_file.h"

namespace lockstep::archive {

/// The pickle of a value, and the tensors that it refers to: number k is to be stored as "data/k".
struct Pickled {
  std::string bytes;
  std::vector<at::Tensor> tensors;
};
Pickled pickle(const Value& value);

/// Where the reader finds a storage: its key, and how many bytes it must have at least.
using ReadStorage = std::function<c10::Storage(const std::string& key, size_t bytes)>;

/// Runs a pickle of protocol 2, of the few operations that torch.save needs for plain values; `name` is for messages.
/// Throws Error.
Value unpickle(std::span<const std::byte> bytes, const ReadStorage& read_storage, const std::string& name);

}  // namespace lockstep::archive
