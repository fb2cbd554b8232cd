// SPDX-License-Identifier: Apache-2.0
#include "train/session/session.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/draws.h"
#include "lockstep/models/init.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/detail/flat.h"
#include "lockstep/run/weights.h"
#include "train/input.h"
#include "train/loss.h"
#include "train/precision.h"
#include "train/session/snapshot.h"

namespace lockstep::train {
namespace {

// A step needs some weight, and a batch of which nobody knows a class has none: this is lost beside a single label.
constexpr double kNoLabels = 1e-30;

parallel::ShareOptions share_options(const std::string& format) {
  using parallel::MemoryFormat;
  return {format == "contiguous"      ? MemoryFormat::contiguous
          : format == "channels-last" ? MemoryFormat::channels_last
                                      : MemoryFormat::automatic};
}

// A network that asks for its weights by their pointers is made anew, and gets them at once.
std::shared_ptr<models::Classifier> made_with(const MakeNetwork& make, std::optional<UnfilledWeights::Scope>& waiting) {
  Draws& draws = *Draws::current();
  const uint64_t taken = draws.taken();
  try {
    return make();
  } catch (const c10::Error&) {
    if (!waiting) throw;
    waiting.reset();
    draws.go_on_at(taken);
    return make();
  }
}

}  // namespace

void Sums::add(const parallel::StepResult& result, double right_answers, const run::Phases& where) {
  loss += result.loss * result.weight;
  right += right_answers;
  examples += result.weight;
  phases += where;
  steps += where.sum() > 0;  // nothing is known of the first step
}

StepSums::StepSums(parallel::Replica& me, const parallel::Optimizer& optimizer)
    : right(me.step_sum(optimizer, "right")),
      stops(me.step_sum(optimizer, "stops")),
      saves(me.step_sum(optimizer, "saves")),
      changes(me.step_sum(optimizer, "changes")),
      failures(me.step_sum(optimizer, "failures")),
      data(me.step_sum(optimizer, "data")),
      forward(me.step_sum(optimizer, "forward")),
      backward(me.step_sum(optimizer, "backward")),
      communication(me.step_sum(optimizer, "communication")),
      update(me.step_sum(optimizer, "update")),
      total(me.step_sum(optimizer, "total")) {}

void Work::fail(std::exception_ptr error) {
  const Lock lock(mutex);
  if (!failure) failure = std::move(error);
}

bool Work::failed() {
  const Lock lock(mutex);
  return failure != nullptr;
}

Session::Session(Work& work, parallel::Replica& me) : work_(work), plan_(work.plan), me_(me) {
  UnfilledWeights unfilled;  // share() hands the first replica's weights to the others, which draw none
  std::optional<UnfilledWeights::Scope> waiting;
  if (!first_here()) waiting.emplace(unfilled);
  auto network = made_with(plan_.task.network, waiting);
  if (plan_.config.batch_norm != "local")
    norm::convert_sync_batchnorm(
        *network, plan_.config.batch_norm == "sync" ? norm::BatchNormMode::synchronised : norm::BatchNormMode::ghost);
  load_initial_weights(*network);
  network_ = me_.share(network, share_options(plan_.config.memory_format));
  unfilled.close();
  waiting.reset();
  optimizer_ = me_.optimizer(plan_.rule(), plan_.optimizer_options());
  optimizer_.schedule(plan_.schedule());
  sums_.emplace(me_, optimizer_);
  me_.audit_with([this](int64_t replica, int64_t pass) { return loss_again(replica, pass); });
  saves_seen_ = work_.save;
  if (work_.start) restore(*work_.start);
  copy();
}

// share() hands replica 0's weights to all. All processes have the same checkpoint: where they hold parts, each takes
// its own weights from there.
void Session::load_initial_weights(models::Classifier& network) const {
  if (work_.start) {
    if (plan_.team.processes_hold_parts() ? first_here() : leads())
      models::load_state_dict(network, work_.start->weights, "checkpoint");
  } else if (first_here() && work_.initial) {
    models::load_state_dict(network, *work_.initial, plan_.config.init);
    work_.initial.reset();
  }
}

void Session::run() {
  // A resumed run that had ended has nothing left to do but its figures; one that a signal ended with an epoch owes
  // those of that epoch.
  if ((done() || test_due_) && work_.evaluator != nullptr) end_epoch();
  too_few_ = !done() && work_.copies != nullptr && !work_.copies->membership.enough();
  if (too_few_) stop_for_lack_of_members();
  while (!done() && !stopping_ && !regrouping_) after(update());
  if (regrouping_) {
    if (first_here()) work_.outcome.regroups = true;
    return;
  }
  finish();
}

Session::Forward Session::forward(const data::Batch& batch) {
  const auto targets = batch.targets.to(me_.device(), /*non_blocking=*/true);
  at::Tensor logits;
  {
    const PrecisionScope precision(plan_.precision, me_.device());
    logits = network_->forward(input_of(batch, me_.device()));
  }
  require(logits.dim() >= 2 && logits.size(0) == targets.size(0), "train", "the network gave ", logits.sizes(), " for ",
          batch.inputs.sizes(), " with targets ", targets.sizes(), ", expected logits of sizes [N, classes, ...]");
  const double per_example = static_cast<double>(std::max<int64_t>(1, plan_.task.train->info().target_numel()));
  const auto sum = sum_of_losses(logits, targets, plan_.config.label_smoothing);
  return {.loss = sum / (batch.weight > 0 ? batch.weight * per_example : 1),
          .right = logits.detach().argmax(1).eq(targets).sum().to(at::kDouble) / per_example};
}

// For an audit: read again, so that nothing depends on who has the share.
at::Tensor Session::loss_again(int64_t replica, int64_t pass) {
  auto& loader = work_.audits;
  if (!loader) {
    data::LoaderOptions options = plan_.loader_options();
    options.block.reset();
    options.workers = 0;
    loader.emplace(plan_.task.train, plan_.order(), options);
  }
  loader->seek({began_.epoch, began_.step + pass});
  return forward(loader->next(replica)).loss;
}

parallel::StepResult Session::update() {
  const int64_t batches = std::min(plan_.config.accumulate, plan_.batches_per_epoch - cursor_.batch);
  began_ = place();
  for (int64_t b = 0;; ++b) {
    const data::Batch batch = next_batch();
    if (work_.ledger != nullptr) work_.ledger->add(batch);
    const auto [loss, right] = forward(batch);
    me_.add(optimizer_, sums_->right, right);
    const double weight = std::max(kNoLabels, batch.weight);
    own_loss_ = loss.detach();
    if (b + 1 < batches) {
      me_.backward(loss, optimizer_, weight);
      continue;
    }
    add_times();
    if (first_here()) {
      me_.add(optimizer_, sums_->stops, work_.stop != 0);
      me_.add(optimizer_, sums_->saves, work_.save != saves_seen_);
      me_.add(optimizer_, sums_->changes, members_have_changed());
      me_.add(optimizer_, sums_->failures, work_.failed());
    }
    cursor_.batch += batches;
    return me_.step(loss, optimizer_, weight);
  }
}

data::Batch Session::next_batch() {
  const PhaseScope waiting(Phase::data);
  return work_.loader.next(me_.number());
}

// Of the step before: this one has not ended yet. An evaluation after it is no part of it, nor is a replica's wait for
// the others' turns in that: all of it takes as long as the devices had work by it.
void Session::add_times() {
  const Timings now = me_.timings(), step = now - added_times_;
  added_times_ = now;
  const double replicas_a_device = static_cast<double>(me_.replicas()) / static_cast<double>(plan_.devices_used);
  for (const auto& [sum, seconds] : {std::pair(sums_->data, step[Phase::data]),
                                     {sums_->forward, step[Phase::forward]},
                                     {sums_->backward, step[Phase::backward]},
                                     {sums_->communication, step[Phase::exchange] + step[Phase::exposed]},
                                     {sums_->update, step[Phase::update]},
                                     {sums_->total, step.total() - replicas_a_device * step[Phase::evaluate]}})
    me_.add(optimizer_, sum, seconds);
}

// Replicas outnumber devices: their work is divided over these, and what is left of a step's time is waiting.
run::Phases Session::phases_of(const parallel::StepResult& result) const {
  const auto devices = static_cast<double>(plan_.devices_used);
  run::Phases out{.data = result.sum(sums_->data) / devices,
                  .forward = result.sum(sums_->forward) / devices,
                  .backward = result.sum(sums_->backward) / devices,
                  .communication = result.sum(sums_->communication) / devices,
                  .update = result.sum(sums_->update) / devices};
  out.wait = std::max(0.0, result.sum(sums_->total) / static_cast<double>(me_.replicas()) - out.sum());
  return out;
}

// All replicas know that one was told to stop. Processes may have had different signals: all end by the largest.
void Session::stop_on_signal() {
  stopping_ = true;
  const auto signals = me_.all_gather(at::full({1}, static_cast<double>(work_.stop), at::kDouble));
  signal_ = static_cast<int>(signals.max().item<double>());
}

void Session::note(const parallel::StepResult& result) {
  if (result.sum(sums_->stops) > 0) stop_on_signal();
  if (result.sum(sums_->failures) == 0) return;
  stopping_ = true;
  const Lock lock(work_.mutex);
  if (!work_.failure) work_.trouble = "another process of this job has failed";
}

void Session::count_bytes() {
  const int64_t sent = plan_.team.bytes_sent();
  if (steps_made_ == 0) sent_before_ = sent;
  if (steps_made_ > 0) work_.outcome.bytes_a_step = (sent - sent_before_) / steps_made_;
  ++steps_made_;
}

void Session::after(const parallel::StepResult& result) {
  ++cursor_.step;
  if (cursor_.batch == plan_.batches_per_epoch) cursor_ = {cursor_.epoch + 1, 0, cursor_.step};
  if (first_here()) count_bytes();
  note(result);
  if (!is_number(result)) return;
  const auto phases = phases_of(result);
  const double right = result.sum(sums_->right);
  epoch_.add(result, right, phases);
  line_.add(result, right, phases);
  report(result, phases);
  const bool ended = epoch_ended() || done();
  if (ended) end_epoch();
  const auto is_due = [&](int64_t every) { return every > 0 && cursor_.step % every == 0; };
  const bool asked = result.sum(sums_->saves) > 0;
  if (asked) saves_seen_ = work_.save;
  if (ended || stopping_ || asked || is_due(plan_.config.save_every)) save();
  regrouping_ = result.sum(sums_->changes) > 0 && !stopping_ && !done();
  if (regrouping_ || is_due(plan_.config.copy_every)) copy();
  if (work_.copies != nullptr && first_here()) work_.copies->step = cursor_.step;
}

// A loss that is none ends the training on all replicas alike; the last checkpoint stays as it is.
bool Session::is_number(const parallel::StepResult& result) {
  if (std::isfinite(result.loss) || !result.updated) return true;
  const auto losses = me_.all_gather(own_loss_.reshape({1}).to(at::kCPU, at::kDouble));
  stopping_ = true;
  for (int64_t r = 0; r < me_.replicas(); ++r) {
    const double loss = losses[r].item<double>();
    if (std::isfinite(loss)) continue;
    const Lock lock(work_.mutex);
    work_.trouble =
        text("the loss is ", loss, " at step ", cursor_.step, " (epoch ", cursor_.epoch + 1, ") on replica ", r);
    break;
  }
  return false;
}

// Files and callbacks are one replica's affair; what fails there ends the training on all, a step later.
void Session::guarded(const std::function<void()>& call) {
  if (!leads() || work_.failed()) return;
  try {
    call();
  } catch (...) {
    work_.fail(std::current_exception());
  }
}

void Session::report(const parallel::StepResult& result, const run::Phases& phases) {
  const StepReport step{.cursor = cursor_,
                        .epochs = plan_.epochs(cursor_),
                        .loss = result.loss,
                        .accuracy = result.sum(sums_->right) / result.weight,
                        .lr = optimizer_.lr(),
                        .gradient_norm = result.gradient_norm,
                        .examples = static_cast<int64_t>(result.weight),
                        .updated = result.updated,
                        .phases = phases};
  guarded([&] {
    if (work_.on_step) work_.on_step(step, *network_);
    if (work_.recorder != nullptr && work_.recorder->step(step, line_)) line_ = {};
  });
  if (!work_.on_weights) return;
  const auto weights = me_.state_dict(*network_, leads());
  guarded([&] { work_.on_weights(step, weights); });
}

void Session::end_epoch() {
  // A resumed run that has nothing left to do has used no example.
  if (work_.ledger != nullptr && epoch_ended() && epoch_.examples > 0) check_data();
  const int64_t every = plan_.config.evaluate_every;
  std::optional<Evaluation> test;
  test_due_ = work_.evaluator != nullptr && (done() || (every > 0 && cursor_.epoch % every == 0));
  if (test_due_ && !stopping_) {
    test_due_ = false;
    const bool wish = first_here() && work_.stop != 0;
    test = work_.evaluator->run(me_, *network_, wish ? 1 : 0);
    if (test->added > 0) stop_on_signal();
  }
  if (leads()) {
    EpochReport& report = work_.outcome.last;
    report = {.epoch = cursor_.epoch,
              .cursor = cursor_,
              .train_loss = epoch_.loss / epoch_.examples,
              .train_accuracy = epoch_.right / epoch_.examples,
              .examples = static_cast<int64_t>(epoch_.examples),
              .test = test,
              .seconds = work_.recorder->seconds()};
    const PhaseScope apart(Phase::evaluate);  // what it draws and writes is no part of a step
    guarded([&] { work_.recorder->epoch(report); });
  }
  if (epoch_ended()) epoch_ = {};
}

void Session::check_data() {
  if (!ledger_is_whole_) {
    guarded([&] {
      work_.recorder->say(text("epoch ", cursor_.epoch, ": not checked, as it was begun without --check-data"));
    });
    if (first_here()) work_.ledger->clear();
    ledger_is_whole_ = true;
    return me_.barrier();
  }
  const auto counts = work_.ledger->state();
  const auto all = me_.sum(first_here() ? counts : at::zeros_like(counts));
  data::Ledger whole(work_.ledger->examples());
  whole.merge(all);
  const auto found = whole.report();
  const int64_t left_out = plan_.config.tail == "drop_last" ? whole.examples() % plan_.config.batch : 0;
  if (leads() && (found.repeated > 0 || found.missed != left_out))
    work_.fail(std::make_exception_ptr(TrainingError(text("train: epoch ", cursor_.epoch, ": ", found.to_string()))));
  else
    guarded([&] { work_.recorder->say(text("epoch ", cursor_.epoch, ": ", found.to_string())); });
  if (first_here()) work_.ledger->clear();
  me_.barrier();
}

void Session::finish() {
  if (first_here()) {
    work_.outcome.signal = signal_;
    work_.outcome.too_few = too_few_;
  }
  const auto weights = me_.state_dict(*network_, leads());
  if (!leads()) return;
  work_.outcome.cursor = cursor_;
  for (const auto& [name, tensor] : weights) work_.outcome.weights[name] = kept_copy(tensor);
  guarded([&] {
    if (!plan_.team.processes_hold_parts()) return work_.recorder->samples(*network_, me_.device());
    UnfilledWeights unfilled;
    const UnfilledWeights::Scope waiting(unfilled);
    const auto whole = probe(plan_.task, plan_.config.seed);
    for (auto& item : whole->named_parameters()) item.value().set_data(work_.outcome.weights.at(item.key()));
    for (auto& item : whole->named_buffers()) item.value().copy_(work_.outcome.weights.at(item.key()));
    const ContextScope alone({.images = Context::current().images});  // the other parts have nothing to do with it
    work_.recorder->samples(*whole, me_.device());
  });
}

}  // namespace lockstep::train
