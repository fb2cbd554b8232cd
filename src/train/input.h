// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/data/loader.h"
#include "lockstep/models/classifier.h"

namespace lockstep::train {

/// What a network is given of a batch: its inputs, or the clouds that they are the voxels of. Coordinates stay on the
/// CPU.
models::Input input_of(const data::Batch& batch, c10::Device device);

}  // namespace lockstep::train
