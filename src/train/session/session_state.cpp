// SPDX-License-Identifier: Apache-2.0
// What a session keeps and goes on from: checkpoints in files, copies in memory.
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/base/log.h"
#include "train/session/session.h"
#include "train/session/snapshot.h"

namespace lockstep::train {

void Session::restore(const run::Checkpoint& checkpoint) {
  restore_buffers(*network_, checkpoint, me_.number());
  if (first_here()) optimizer_.load_state_dict(checkpoint.optimizer);
  cursor_ = checkpoint.cursor;
  saved_ = cursor_;
  me_.set_steps(cursor_.step);
  const FiguresSoFar figures = read_figures(checkpoint.extra);
  epoch_ = figures.epoch;
  line_ = figures.line;
  test_due_ = figures.test_due && epoch_ended();
  ledger_is_whole_ = figures.ledger.defined() || cursor_.batch == 0;
  if (first_here()) {
    work_.loader.seek(place());
    if (work_.ledger != nullptr && leads() && figures.ledger.defined()) work_.ledger->merge(figures.ledger);
  }
  me_.barrier();
}

// Collective. The state and the figures, as the replica needs them that asks.
run::Checkpoint Session::checkpoint(bool needed) {
  const auto buffers = me_.differing_buffers(*network_, needed);
  const auto weights = me_.state_dict(*network_, needed);
  const auto optimizer = me_.state_dict(optimizer_, needed);
  at::Tensor ledger;
  if (work_.ledger != nullptr && ledger_is_whole_) {
    const auto counts = work_.ledger->state();
    ledger = me_.sum(first_here() ? counts : at::zeros_like(counts));
  }
  if (!needed) return {};
  run::Checkpoint out = snapshot(plan_, weights, optimizer, cursor_);
  out.buffers = buffers;
  FiguresSoFar figures{.epoch = epoch_, .line = line_, .ledger = ledger, .test_due = test_due_};
  if (work_.recorder != nullptr) {
    figures.seconds = work_.recorder->seconds();
    figures.line_seconds = work_.recorder->line_seconds();
    figures.one_recipe = work_.recorder->has_one_recipe();
  }
  out.extra = write_figures(figures);
  return out;
}

void Session::save() {
  if (saved_ == cursor_) return;
  saved_ = cursor_;
  const bool writes = leads() && !work_.failed();
  run::Checkpoint now = checkpoint(writes);
  if (!writes) return;
  guarded([&] {
    if (is_finite(now.weights))
      work_.recorder->save(std::move(now));
    else
      log_warning("the weights are not finite after step ", cursor_.step, ": no checkpoint is written");
  });
}

// Into the memory of each process, so that any of them can go on from there. Only process 0 has a run's figures: all
// keep those.
void Session::copy() {
  if (work_.copies == nullptr) return;
  run::Checkpoint now = checkpoint(first_here());
  const at::Tensor figures = at::zeros({6}, at::kDouble);
  if (leads())
    figures.copy_(at::tensor({line_.loss, line_.right, line_.examples, work_.recorder->seconds(),
                              work_.recorder->line_seconds(), work_.recorder->has_one_recipe() ? 1.0 : 0.0},
                             at::kDouble));
  const at::Tensor rows = me_.all_gather(figures);
  if (!first_here()) return;
  const double* of_leader = rows.const_data_ptr<double>();
  FiguresSoFar so_far = read_figures(now.extra);
  so_far.line = {.loss = of_leader[0], .right = of_leader[1], .examples = of_leader[2]};
  so_far.seconds = of_leader[3];
  so_far.line_seconds = of_leader[4];
  so_far.one_recipe = of_leader[5] != 0;
  now.extra = write_figures(so_far);
  now.extra.push_back({"out", {plan_.config.out}});
  work_.copies->newest = std::move(now);
}

// The store is asked now and then, by one process: the others learn it along with the step.
bool Session::members_have_changed() {
  constexpr std::chrono::milliseconds kPause{100};
  if (work_.copies == nullptr || me_.number() != 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kPause) return false;
  looked_ = now;
  return work_.copies->membership.has_changed();
}

void Session::stop_for_lack_of_members() {
  stopping_ = true;
  saved_ = {-1, -1, -1};
  save();
}

}  // namespace lockstep::train
