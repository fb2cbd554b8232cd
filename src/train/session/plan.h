// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/loader.h"
#include "lockstep/parallel/optimizer.h"
#include "lockstep/parallel/schedule.h"
#include "lockstep/parallel/team.h"
#include "lockstep/train/job.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

/// A configuration as worked out for a task and the processes at hand.
struct Plan {
  run::Config config;  // no default is left open
  Task task;
  parallel::Team team;
  int64_t devices;       // of all processes together
  int64_t devices_used;  // no more than there are replicas
  data::Transforms transforms;
  data::Layout layout;
  bool cuda;  // its devices are GPUs
  Precision precision;
  bool has_batch_norms;
  int64_t parameters;  // numbers that are trained
  int64_t batches_per_epoch;
  int64_t updates_per_epoch;
  int64_t updates;        // in all, where nothing stops it
  std::string why_split;  // lines for people, where it was chosen here

  data::LoaderOptions loader_options() const;
  EvaluationOptions evaluation_options() const;
  parallel::Rule rule() const;
  parallel::OptimizerOptions optimizer_options() const;
  parallel::Schedule schedule() const;
  data::Order order() const;
  /// Passes over the data done, with the part of the one that runs.
  double epochs(const run::TrainingCursor& cursor) const;
};

/// What is left open of the update rule becomes its usual number, so that nobody has to know these who reads
/// config.toml.
void settle_rule(run::Config& config);

/// The update rule of a configuration that leaves nothing of it open.
parallel::Rule rule_of(const run::Config& config);

/// The configuration that a checkpoint was written with, no default left open.
run::Config config_of(const run::Checkpoint& checkpoint);

/// A network for looking at: what the replicas make later draws the same numbers.
std::shared_ptr<models::Classifier> probe(const Task& task, uint64_t seed);

/// Collective: the sum of what each process of the group has.
int64_t sum_over(const comm::Group& group, int64_t mine);

/// What `read` finds in a file of this host where its checksums are these, which are process 0's. None where the file
/// isn't here, is damaged or another one, or where it has no checksums: process 0 has to send what it has.
template <class Read>
auto read_same(const std::string& checksums, const Read& read) -> std::optional<decltype(read())> {
  if (checksums.empty()) return std::nullopt;
  try {
    auto found = read();
    if (found.checksums == checksums) return found;
  } catch (const Error& error) {
    log_info("process 0 sends what it has: ", error.what());
  }
  return std::nullopt;
}

/// Collective. Throws Error as Trainer's constructor says.
Plan make_plan(const run::Config& config, Task task, const comm::Group& group);

}  // namespace lockstep::train
