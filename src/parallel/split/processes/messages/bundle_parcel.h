// SPDX-License-Identifier: Apache-2.0
// What stages hand on, as processes send it each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/context/detail/crossing.h"
#include "lockstep/context/stages.h"
#include "parallel/split/processes/messages/parcel.h"

namespace lockstep::parallel {

/// The bundle's values for this part, of which each tensor comes once, and where the replica's random draws are.
Parcel parcel_of(const Bundle& bundle, Crossing& pass, int64_t to);
/// The values' tensors in it, copied: whoever has the bundle may write to those before they are sent.
std::vector<at::Tensor> copies_of_features(const Parcel& parcel);
/// The tensors in it that are to have gradients, in the same order on both sides.
std::vector<at::Tensor> with_gradients(const Parcel& parcel);
/// On the other side. The thread's draws go on where they were.
Bundle bundle_of(const Parcel& parcel, Crossing& pass, int64_t from);

/// The same values, whose features have no history, and which have nothing in common with these but memory.
Bundle apart(const Bundle& bundle);

}  // namespace lockstep::parallel
