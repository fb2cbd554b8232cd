// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/comm/membership.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/order.h"
#include "lockstep/models/classifier.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/run/checkpoint.h"
#include "lockstep/run/config.h"
#include "lockstep/run/metrics.h"
#include "lockstep/train/evaluation.h"

namespace lockstep::train {

/// Makes a network: called once by each replica, inside the team's run. Random numbers there are the same on all.
using MakeNetwork = std::function<std::shared_ptr<models::Classifier>()>;

/// What is trained on what.
struct Task {
  std::string model;  ///< a name for checkpoints
  MakeNetwork network;
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> test{};  ///< none: no evaluation
  std::optional<data::Order> order{};           ///< of one's own; else the configuration's
};

/// The registry's network and the data set that a configuration names. Throws Error for what is not there.
Task make_task(const run::Config& config);
/// The registry's network for data of this description.
MakeNetwork make_network(const run::Config& config, const data::DatasetInfo& info);

/// One update, as a callback sees it.
struct StepReport {
  run::TrainingCursor cursor;  ///< after it
  double epochs = 0;           ///< passes over the data done, with the part of the one that runs
  double loss = 0;
  double accuracy = 0;
  double lr = 0;
  double gradient_norm = 0;  ///< where clip asks for it, else 0
  int64_t examples = 0;
  bool updated = true;  ///< false where loss scaling left the update out
  /// Where the time of the step before went, for each device: the parts add up to the time of that step.
  run::Phases phases{};
};

/// One epoch.
struct EpochReport {
  int64_t epoch = 0;  ///< epochs done
  run::TrainingCursor cursor;
  double train_loss = 0;  ///< the mean over the epoch, while the weights changed; NaN where nothing was trained
  double train_accuracy = 0;
  int64_t examples = 0;  ///< trained on
  std::optional<Evaluation> test{};
  double seconds = 0;  ///< of training, since the run's start
};

/// How a run ended.
struct Outcome {
  run::TrainingCursor cursor;
  EpochReport last;       ///< the last whole epoch, or what there was of the first
  int signal = 0;         ///< what stopped it, or 0
  bool too_few = false;   ///< processes are left to go on: it has ended with a checkpoint
  bool regroups = false;  ///< it goes on with another generation of processes (survive.h)
  double seconds = 0;
  run::Tensors weights;  ///< on the process that runs replica 0; replica 0's parameters and buffers
  std::string hash;      ///< of the weights; there too
  /// What this process has sent to others in a step and until the next one: the mean, without the first step.
  int64_t bytes_a_step = 0;

  bool is_whole() const { return signal == 0 && !too_few && !regroups; }
};

/// Training has failed: a loss that is no number, a disk that is full, a process that gave up. No mistake of a caller.
class TrainingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Trains a network as a configuration says, in any placement with the same bits. `lockstep train` and programs of
/// one's own stand on it:
///
///     Trainer trainer({.batch = 128, .lr = 0.1, .epochs = 5, .out = "runs/mine"},
///                     {.model = "mine",
///                      .network = [] { return models::Classifier::of(std::make_shared<MyNetImpl>()); },
///                      .train = data::open_dataset("fashion-mnist", data::Subset::train)});
///     trainer.on_epoch([](const EpochReport& epoch) { std::cout << epoch.train_loss << "\n"; });
///     trainer.run();
///
/// In a job of several processes each makes the same one; process 0 alone writes files and calls callbacks.
class Trainer {
 public:
  /// Works out what the configuration leaves open. `start` goes on from a checkpoint; without it config.resume names
  /// one. Collective. Throws Error for what makes no sense: more replicas than examples, a batch smaller than the
  /// replicas, a device that is not there, a checkpoint of another recipe or weights of another network (listing what
  /// differs).
  Trainer(const run::Config& config, Task task, const comm::Group& group, std::optional<run::Checkpoint> start = {});
  /// With the processes of this job: comm::connect().
  Trainer(const run::Config& config, Task task);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// As worked out: every default is a value.
  const run::Config& config() const;
  /// By this process to others so far.
  int64_t bytes_sent() const;
  /// Why it divides the network as it does, in lines for people, where the configuration's split is "auto"; else empty.
  const std::string& why_split() const;
  /// "lenet on fashion-mnist: 8 replicas on 2 threads, batch 256"
  std::string describe() const;

  /// Called by replica 0's thread on process 0, while the others go on. An exception ends the training. Where processes
  /// hold parts of the network, the weights of other parts are NaN: on_weights() has them.
  void on_step(std::function<void(const StepReport&, const models::Classifier&)> callback);
  /// Called like on_step(), and after it, with the parameters and buffers by name. Where processes hold parts of the
  /// network these are brought together in each step, so set it on all processes or on none.
  void on_weights(std::function<void(const StepReport&, const models::StateDict&)> callback);
  void on_epoch(std::function<void(const EpochReport&)> callback);

  /// Allows run() to replace the run that config.out holds.
  void overwrite();

  /// Keeps copies of the state in memory, so that the others can go on when a process of this job is lost; a CommError
  /// comes out of run() then, and newest_copy() is where to go on. train_surviving() does all that.
  void survive(comm::Membership& membership);
  /// What happened before, for the log and the metrics.
  void say_event(const std::string& event);
  /// None before the first.
  std::optional<run::Checkpoint> newest_copy() const;
  /// Updates done in all, so far.
  int64_t steps_done() const;

  /// Trains to the end, or until request_stop. Collective; once. The weights come out, checkpoints and the run's other
  /// files are written. Throws Error where config.out holds a run already that this one does not go on with, and
  /// nobody has called overwrite(); TrainingError, and what the network or a callback threw.
  Outcome run();

  /// Ends all training of this process's job after the step that is under way, with a checkpoint. May be called from a
  /// signal handler, with the signal's number.
  static void request_stop(int signal) noexcept;
  /// A checkpoint after the step that is under way, and training goes on. From a signal handler too.
  static void request_save() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The figures of weights on a data set, on all devices that the configuration names, each example counted once: the
/// same bits in every placement. Collective. Throws Error where the weights are not of the network, listing what
/// differs.
Evaluation evaluate(const run::Config& config, const Task& task, const run::Tensors& weights, const comm::Group& group,
                    const Figures& figures = {});

/// The newest whole checkpoint of a run's folder, or that file, as process 0 finds it. Processes that have the same
/// file read it there, others are sent it. Empty where the folder has none. Collective. Throws Error on all processes
/// where process 0 can't read it.
std::optional<run::Checkpoint> fetch_checkpoint(const std::string& path, const comm::Group& group);

/// The configuration with which a run goes on: the checkpoint's, with `config`'s values for devices, blocks, out and
/// resume. `given` names the options that somebody has set: those that are no part of the recipe, epochs and steps are
/// `config`'s too; others must say what the checkpoint says, or an Error lists what differs.
run::Config resumed_config(const run::Config& config, const std::vector<std::string>& given,
                           const run::Checkpoint& checkpoint);

}  // namespace lockstep::train
