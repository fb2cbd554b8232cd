// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

namespace lockstep::archive {

/// Whether safetensors have a name for the dtype: write_tensor_file refuses other tensors.
bool safetensors_hold(c10::ScalarType type);

}  // namespace lockstep::archive
