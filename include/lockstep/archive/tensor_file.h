// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"

/// Files of PyTorch (`torch.save`, `torch.load`): a zip of one pickle and the tensors' bytes. Written here they load
/// there with `weights_only=True`; read here they run no code, whatever they hold. A file whose name ends in
/// .safetensors has that format instead: named tensors and nothing else.
namespace lockstep::archive {

/// A plain Python value. Tuples are read as lists.
struct Value {
  struct Entry;
  using List = std::vector<Value>;
  using Dict = std::vector<Entry>;  // in the file's order

  std::variant<std::monostate, bool, int64_t, double, std::string, at::Tensor, List, Dict> held;

  /// The value as one type: `value.as<int64_t>("step")`. Throws Error naming what it is of.
  template <class T>
  const T& as(const std::string& what) const {
    const T* found = std::get_if<T>(&held);
    require(found != nullptr, "tensor file", "'", what, "' is ", kind(), ", expected another type");
    return *found;
  }
  /// The entry of a dict with this key, or null.
  const Value* find(const std::string& key) const;
  /// Throws Error where there is none.
  const Value& at(const std::string& key) const;

  /// "a dict", "a tensor", ...
  const char* kind() const;
};

/// Of a dict.
struct Value::Entry {
  std::string first;
  Value second;
};

/// A file that is not there whole: empty, cut short, with damaged bytes, or not of its format at all.
class DamagedFile : public Error {
 public:
  using Error::Error;
};

/// Whether the name says that the file holds safetensors.
bool is_safetensors(const std::string& path);

/// Reads what torch.save wrote: dicts (with text keys), OrderedDicts, lists, tuples, numbers, strings, None, tensors
/// and parameters. Tensors are on the CPU, with the sizes and strides they were saved with; views of one storage share
/// it here too. Safetensors are read as a dict of tensors, in the order of their bytes; `__metadata__` is checked and
/// left out. Throws DamagedFile as said there, Error where the file holds other objects, both naming the file.
Value read_tensor_file(const std::string& path);
/// The same from memory; `name` is for messages.
Value read_tensor_file(std::span<const std::byte> bytes, const std::string& name);

/// Writes the file aside (PATH.partial), syncs it and renames it, so that PATH is at any time the old file or the new,
/// whole. Tensors are written contiguous, from any device; those that are the same storage are written once (in
/// safetensors, which know no sharing, each by itself). Throws Error, naming the file, where the disk is full or the
/// file can't be made, and where safetensors can't hold the value: it is no dict of tensors, or a dtype has no name
/// there.
void write_tensor_file(const std::string& path, const Value& value);

}  // namespace lockstep::archive
