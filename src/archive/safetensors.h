// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "archive/source.h"
#include "lockstep/archive/tensor_file.h"
#include "lockstep/base/detail/atomic_file.h"

namespace lockstep::archive {

/// A dict of tensors, in the order of their bytes. Throws DamagedFile, which names the file `name`.
Value read_safetensors(const Source& source, const std::string& name);

/// Throws Error, which names the file `name`, where the value is no dict of tensors that the format can hold.
void write_safetensors(AtomicFile& file, const Value& value, const std::string& name);

}  // namespace lockstep::archive
