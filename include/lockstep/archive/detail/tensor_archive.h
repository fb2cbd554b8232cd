// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/archive/tensor_file.h"
#include "lockstep/base/detail/atomic_file.h"

namespace lockstep::archive {

/// What write_tensor_file puts into a file.
void write_archive(AtomicFile& file, const Value& value);

}  // namespace lockstep::archive
