// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/comm/membership.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

/// Makes the trainer of one generation of processes: from the copy that the processes have agreed on, or as the job
/// begins where none has one yet.
using MakeTrainer =
    std::function<std::unique_ptr<Trainer>(const comm::Group& group, const std::optional<run::Checkpoint>& copy)>;

/// Trains, and goes on with the processes that are left when one is lost (parallel/detail/surviving_work.h): replicas
/// are divided anew. The result is that of a run to which nothing happened.
///
/// Each process calls it alike. The outcome, as Trainer::run() gives it, is of the last generation.
Outcome train_surviving(comm::Membership& membership, const MakeTrainer& make);

/// The folder of the run that a copy is of.
std::string folder_of(const run::Checkpoint& copy);

}  // namespace lockstep::train
