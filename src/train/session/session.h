// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/timeline.h"
#include "lockstep/comm/membership.h"
#include "lockstep/data/ledger.h"
#include "lockstep/parallel/replica.h"
#include "train/session/plan.h"
#include "train/session/recorder.h"

namespace lockstep::train {

/// Sums over examples since some moment.
struct Sums {
  double loss = 0;
  double right = 0;
  double examples = 0;
  run::Phases phases{};  // of so many steps; not kept in checkpoints
  int64_t steps = 0;
  void add(const parallel::StepResult& result, double right_answers, const run::Phases& where);
};

/// What replicas add up along with each step. Times are seconds of the step before.
struct StepSums {
  StepSums(parallel::Replica& me, const parallel::Optimizer& optimizer);
  parallel::StepSum right, stops, saves, changes, failures;
  parallel::StepSum data, forward, backward, communication, update, total;
};

/// What a process keeps in memory of a run that goes on without the processes that it loses.
struct Copies {
  comm::Membership& membership;
  std::optional<run::Checkpoint> newest{};
  int64_t step = 0;  // done in all when the run broke off
};

/// What all replicas of a process share while they train.
struct Work {
  const Plan& plan;
  const std::optional<run::Checkpoint>& start;
  std::optional<run::Tensors>& initial;  // of a file, until they are loaded
  data::Loader& loader;
  Evaluator* evaluator;          // none without a test set
  data::Ledger* ledger;          // none unless the data is checked
  Recorder* recorder;            // on process 0
  const std::atomic<int>& stop;  // the number of a signal that asks to stop
  const std::atomic<int>& save;  // how often a signal has asked for a checkpoint
  Copies* copies;                // of the replica that comes first here; none where a lost process ends the run
  std::function<void(const StepReport&, const models::Classifier&)> on_step;
  std::function<void(const StepReport&, const models::StateDict&)> on_weights;

  // Set by the replica of this process that comes first.
  std::optional<data::Loader> audits{};  // reads for them, on one thread at a time; made for the first
  Mutex mutex{};
  std::exception_ptr failure LOCKSTEP_GUARDED_BY(mutex){};
  std::string trouble LOCKSTEP_GUARDED_BY(mutex){};  // that all replicas agree on
  Outcome outcome;

  /// Keeps the first exception, for the end.
  void fail(std::exception_ptr error);
  bool failed();
};

/// One replica's training, from the start or a checkpoint to the end. All replicas run the same calls.
class Session {
 public:
  Session(Work& work, parallel::Replica& me);
  void run();

 private:
  void restore(const run::Checkpoint& checkpoint);
  void load_initial_weights(models::Classifier& network) const;
  parallel::StepResult update();
  data::Batch next_batch();
  struct Forward {
    at::Tensor loss;
    at::Tensor right;  // answers, in examples
  };
  Forward forward(const data::Batch& batch);
  at::Tensor loss_again(int64_t replica, int64_t pass);
  void after(const parallel::StepResult& result);
  void count_bytes();
  void report(const parallel::StepResult& result, const run::Phases& phases);
  void end_epoch();
  void check_data();
  run::Checkpoint checkpoint(bool needed);
  void save();
  void copy();
  bool members_have_changed();
  void stop_for_lack_of_members();
  void finish();
  bool is_number(const parallel::StepResult& result);
  void add_times();
  run::Phases phases_of(const parallel::StepResult& result) const;
  void note(const parallel::StepResult& result);
  void stop_on_signal();
  void guarded(const std::function<void()>& call);

  bool first_here() const { return me_.number() == plan_.team.block().begin; }
  // Where processes hold parts of the network, replica 0 runs in each part of its copy.
  bool leads() const { return me_.number() == 0 && plan_.team.group().rank() == 0; }
  bool epoch_ended() const { return cursor_.batch == 0; }
  bool done() const { return cursor_.step >= plan_.updates; }
  data::BatchCursor place() const { return {cursor_.epoch, cursor_.batch}; }

  Work& work_;
  const Plan& plan_;
  parallel::Replica& me_;
  std::shared_ptr<models::Classifier> network_;
  parallel::Optimizer optimizer_;
  std::optional<StepSums> sums_;  // once there is an optimiser
  run::TrainingCursor cursor_;
  run::TrainingCursor saved_{-1, -1, -1};
  data::BatchCursor began_{};  // the step that is under way
  Sums epoch_, line_;
  Timings added_times_;
  int64_t steps_made_ = 0;   // here, by this session
  int64_t sent_before_ = 0;  // by this process, until its first step had ended
  at::Tensor own_loss_;
  int signal_ = 0;
  bool stopping_ = false;
  bool regrouping_ = false;  // another process is ready to take part
  bool too_few_ = false;     // processes are left
  int saves_seen_ = 0;
  std::chrono::steady_clock::time_point looked_{};  // for another process
  bool test_due_ = false;                           // of an epoch that a signal ended
  bool ledger_is_whole_ = true;                     // has all of the epoch that runs
};

}  // namespace lockstep::train
