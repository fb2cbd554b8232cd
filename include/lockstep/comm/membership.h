// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/connect.h"

namespace lockstep::comm {

class Periodic;
namespace members {
struct Generation;
}

/// Who works together, in a job that goes on when one of its processes is lost (`lockstep run --survive`). The launcher
/// sees who dies and says who is left; each change is a generation, and a group lives as long as one:
///
///     std::optional<Membership> membership = Membership::of_this_job();
///     Group group = membership ? membership->join() : connect();
///     ... a CommError comes out of an operation ...
///     group = membership->join();  // of those that are left, perhaps with other ranks
///
/// Where another host is lost no connection closes. So with several hosts the group of a generation is aborted as soon
/// as the launcher names a newer one that lacks one of its members. Any host may be lost, the first one too: each
/// process asks the launcher of its own.
///
/// What the processes know of each other's state is the program's affair: the trainer keeps copies of the state
/// of some step, and goes on from the newest.
class Membership {
 public:
  /// None where this process's launcher doesn't tell.
  static std::optional<Membership> of_this_job(const ConnectOptions& options = {});

  /// This process takes the place of a lost one, or is of a host that has come back, and says when it is ready to join
  /// the others.
  bool is_newcomer() const { return newcomer_; }
  void say_ready();

  /// The group of the newest generation, as soon as it is another than the last one joined. Collective over its
  /// members, each with the rank of its place among them. Throws CommError when there is none within the timeout, or
  /// its members don't come: because the work is done (is_done()), or lost.
  Group join();

  /// That the work is done and written, for those who lose somebody while all are leaving.
  void say_done();
  bool is_done();

  /// Whether the launcher names a newer generation than the one joined: one has been lost, or a new one is ready.
  bool has_changed();

  int generation() const { return generation_; }
  /// Whether as many are left as are wanted at least.
  bool enough() const { return enough_; }
  /// The ranks, as the launcher counts them, of the generation joined.
  const std::vector<int>& ranks() const { return ranks_; }

  /// What it is made of; internal to comm.
  struct Connection;
  Membership(std::shared_ptr<Connection> connection, bool is_newcomer);

 private:
  class Meeting;
  void watch(const members::Generation& joined, const std::optional<Group>& group);

  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Periodic> watch_;
  bool newcomer_ = false;
  bool enough_ = true;
  int generation_ = -1;
  std::vector<int> ranks_;
};

}  // namespace lockstep::comm
