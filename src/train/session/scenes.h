// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/models/classifier.h"
#include "lockstep/run/scenes.h"
#include "train/session/plan.h"

namespace lockstep::train {

/// What a network in evaluation makes of the first few scenes of the plan's test set, a few thousand voxels of each.
/// None where they have no class for each voxel, or more classes than a scene can hold.
run::Scenes scenes_of(const Plan& plan, models::Classifier& network, c10::Device device);

}  // namespace lockstep::train
