// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/context/detail/image_operations.h"

namespace lockstep::dense {

/// For a thread's Context: libtorch's operations on that thread are then computed by this layer's where that is faster,
/// forward and backward: convolutions of few channels or of 1 x 1 with a stride, and average pooling, both of float32
/// images on the CPU in channels-last. LOCKSTEP_DENSE=libtorch in the environment (read once) leaves all to libtorch;
/// `own` takes all that this layer can.
const ImageOperations& image_operations();

}  // namespace lockstep::dense
