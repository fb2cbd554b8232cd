// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/comm/membership.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"

namespace lockstep::parallel {

struct SurviveOptions {
  int64_t copy_every = 10;  ///< steps
};

/// A program with a loop of its own that goes on when one of its processes is lost (`lockstep run --survive`): those
/// that are left make a team anew, and run the body again from the state that Replica::keep() has copied. A process
/// that takes a lost one's place joins them at a copy. The result is that of a run to which nothing happened:
///
///     run_surviving({.replicas = 8, .devices = "cpu:2"}, [&](Replica& me) {
///       auto net = me.share(LeNet());
///       auto optimizer = me.optimizer(Sgd{.lr = 0.2});
///       for (me.keep(optimizer); me.steps() < 1000; me.keep(optimizer)) {
///         auto batch = batch_of(me.steps());  // of the step, whoever asks
///         me.step(cross_entropy(net->forward(me.share_of(batch.inputs)), me.share_of(batch.targets)), optimizer);
///       }
///       if (me.number() == 0) save(*net);  // in here: it is done again by another where its writer is lost
///     });
///
/// The group is that of the job: `options.group` and `options.blocks` stay empty. Without --survive this is Team::run,
/// with comm::connect(). Reads of data belong before it: a process that is new says here that it is ready. Throws
/// Error where fewer processes are left than `lockstep run --least` wants, or where processes would hold parts of the
/// network, which are lost with them.
void run_surviving(const TeamOptions& options, const std::function<void(Replica&)>& body,
                   const SurviveOptions& survive = {});
/// The same with members that are known.
void run_surviving(comm::Membership& membership, const TeamOptions& options, const std::function<void(Replica&)>& body,
                   const SurviveOptions& survive = {});

}  // namespace lockstep::parallel
