// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/session/session.h"

namespace lockstep::train {

/// What a checkpoint keeps besides what training depends on, so that the figures go on too.
struct FiguresSoFar {
  Sums epoch, line;
  at::Tensor ledger;  // of all processes together; undefined where the data is not checked
  double seconds = 0;
  double line_seconds = 0;  // that `line` has taken
  bool one_recipe = true;   // from the run's start on
  bool test_due = false;    // of the epoch that has ended: a signal came first
};

/// Weights, optimiser and all that describes the run, copied; `buffers` and `extra` are left empty.
run::Checkpoint snapshot(const Plan& plan, const run::Tensors& weights, const run::Tensors& optimizer,
                         const run::TrainingCursor& cursor);

/// Replica `number`'s values of the buffers in which replicas differ.
void restore_buffers(const models::Classifier& network, const run::Checkpoint& checkpoint, int64_t number);

archive::Value::Dict write_figures(const FiguresSoFar& figures);
FiguresSoFar read_figures(const archive::Value::Dict& extra);

/// Whether no number is infinite or none.
bool is_finite(const run::Tensors& tensors);

}  // namespace lockstep::train
