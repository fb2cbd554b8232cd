// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/timeline.h"
#include "lockstep/comm/group.h"
#include "lockstep/numerics/device.h"
#include "lockstep/numerics/placement.h"
#include "lockstep/parallel/split.h"

namespace lockstep::parallel {

class Replica;
struct TeamState;

/// Who adds up gradients. `canonical`: the tree over replicas, the same bits in every placement. `ring`: the process
/// group's own all-reduce, for speed without the contract.
using comm::Order;

struct TeamOptions {
  /// R, the number of logical replicas that a batch is divided over: part of the recipe.
  int64_t replicas = 1;
  /// What computes them in this process, as parse_devices() reads it: "cpu" (a thread a core), "cpu:2", "cuda:0".
  /// Empty: the GPU of this process where there is one, else "cpu".
  std::string devices{};
  /// The processes that share the work; comm::connect() joins those of a job.
  comm::Group group{};
  /// How many replicas each process runs; empty: sizes differ by at most one. {3, 3, 2} is legal, so is {0, 8}.
  std::vector<int64_t> blocks{};
  /// What random layers and initialisation inside run() draw from (context/random_scope.h): torch::manual_seed has no
  /// effect there.
  uint64_t seed = 0;
  Order order = Order::canonical;
  /// S, the fixed parts of each layer's output channels that are computed apart: part of the recipe. Layers are
  /// convolutions and linear ones; convolutions in groups are computed as a whole. On the CPU.
  int64_t slices = 1;
  /// Where batch norms are synchronised: one call of autograd's backward() for all replicas of this process, on one
  /// thread, so that they need not wait in it. Always so on a GPU; elsewhere it is slower, and gives the same bits.
  bool shares_backward = false;
  /// How the threads of this process divide the network that is shared; those that are left over divide the batch.
  /// Where some process has fewer threads than parts, each process is one part instead, on all its threads: ranks 0 to
  /// parts - 1 are one copy of the network, the next ones another, and replicas are divided over the copies. A part
  /// then holds its own weights alone, and `blocks` are of copies. Until the first step has ended a parameter that is
  /// drawn in place (uniform_, normal_) has no memory before an operation uses it: its pointer is not to be asked for.
  /// Where processes may be lost (survive.h) and are no multiple of the parts, each has the whole network meanwhile.
  /// With two parts "cpu:4" is two copies of each. A network that can be cut (context/stages.h) is trained as without;
  /// share() throws Error for any other. With fewer threads than parts a thread computes neighbouring parts. With two
  /// sharers "cpu:4" is two pairs; a pair computes the slices of one replica's layers at once.
  Split split = {};
  /// Every so many steps the gradient of one replica, drawn by the seed, is computed again before the update: on
  /// another core of this process, or by another process. 0: never. Where bits differ a third device votes, and
  /// AuditError (audit_error.h) names the wrong one. The result is that of a run without; each replica must call
  /// Replica::audit_with(). Not with a split, and not on a single device. Synchronised batch norms are given again what
  /// they had exchanged.
  int64_t audit = 0;
};

/// R replicas and where they run. A value: copies are the same team.
///
///     auto team = Team::create({.replicas = 8, .devices = "cpu:2"});
///     team.run([&](Replica& me) {
///       auto net = me.share(LeNet());
///       auto optimizer = me.optimizer(Sgd{.lr = 0.2});
///       for (...) {
///         auto loss = cross_entropy(net->forward(inputs), targets);  // of this replica's share
///         me.step(loss, optimizer);
///       }
///     });
///
/// On the CPU each replica is a thread of run()'s own, bound to a core for moments, with one intra-op thread; with more
/// replicas than devices they take turns. On a GPU they run one after the other; several GPUs are several processes.
class Team {
 public:
  /// Throws Error for options that make no sense: more devices than replicas are fine, several GPUs in one process,
  /// blocks that don't add up, or a process group of threads are not. Collective where the group has several processes.
  static Team create(const TeamOptions& options);

  int64_t replicas() const;
  /// The replicas of this process.
  Interval block() const;
  const Placement& placement() const;
  const comm::Group& group() const;
  /// The bytes that this process has sent to others so far: gradients, losses, statistics, states.
  int64_t bytes_sent() const;
  /// Whether the network that is shared lies in several processes, each of which holds a part of it.
  bool processes_hold_parts() const;
  /// Whether this process computes the network's first stage. Else forward() passes over it, and may be given any
  /// values of the input's sizes: images need not be read (data::LoaderOptions::inputs).
  bool holds_first_part() const;
  /// One line: "8 replicas on 2 processes (4+4), 2 threads here".
  std::string describe() const;

  /// Runs body(me) once for each replica of this process, each on a thread of its own, and joins them. An exception in
  /// one stops the others, here and in the other processes, and comes out as a ReplicaError with that replica's number
  /// (replica_error.h), once all have been joined. May be called again, not from within.
  ///
  /// With LOCKSTEP_TRACE=FILE in the environment the replicas' spans (base/timeline.h) are added to that file at the
  /// end, one file a process.
  void run(const std::function<void(Replica&)>& body) const;

  /// Where the time of the last run went, one a replica of this process. Throws Error while a run is under way:
  /// a replica sees its own (Replica::timings).
  std::vector<Timings> timings() const;

 private:
  explicit Team(std::shared_ptr<TeamState> state) : state_(std::move(state)) {}
  std::shared_ptr<TeamState> state_;
};

}  // namespace lockstep::parallel
