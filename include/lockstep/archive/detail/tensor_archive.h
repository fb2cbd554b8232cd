// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "lockstep/archive/tensor_file.h"

namespace lockstep::archive {

/// What write_tensor_file puts into a file, piece by piece.
void write_archive(const std::function<void(std::string_view)>& write, const Value& value);

}  // namespace lockstep::archive
