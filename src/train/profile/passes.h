// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/data/loader.h"
#include "lockstep/models/classifier.h"
#include "lockstep/parallel/forecast.h"
#include "lockstep/run/config.h"
#include "lockstep/train/evaluation.h"

namespace lockstep::train {

/// What replica 0's pass over this batch costs, the median of so many measurements (parallel/choose_split.h:
/// measure_passes). A network without stages is one stage where `as_one`; else that is an Error.
parallel::StepCost cost_of_passes(models::Classifier& network, const data::Batch& batch, const run::Config& config,
                                  Precision precision, int times, bool as_one = false);

}  // namespace lockstep::train
