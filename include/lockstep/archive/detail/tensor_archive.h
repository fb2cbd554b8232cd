// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/archive/detail/safe_file.h"
#include "lockstep/archive/tensor_file.h"

namespace lockstep::train {

/// What write_tensor_file puts into a file.
void write_archive(SafeFile& file, const Value& value);

/// A whole file in memory. Throws Error where it can't be read.
std::string read_bytes(const std::string& path);

}  // namespace lockstep::train
