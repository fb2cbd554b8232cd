// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/store.h"
#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// What another host's launcher says that ends the run.
struct DistantEnd {
  std::string why;  // empty where all went well
  int exit_code;
};

/// Who works in a run whose ranks go on when one is killed, as a host's launcher sees it. One launcher keeps it, first
/// that of rank 0's host, and those of other hosts report to that one. Each tells its own ranks, through its own store.
class Roster {
 public:
  virtual ~Roster() = default;

  /// A signal has killed this rank of ours. What that means for the others, as the end of a sentence.
  virtual std::string lose(int rank) = 0;
  /// A process was started in a lost one's place.
  virtual void expect(int rank, pid_t newcomer) = 0;
  /// It has ended before it took part.
  virtual void forget(int rank, pid_t newcomer) = 0;
  /// Whether it takes part by now.
  virtual bool has_admitted(int rank, pid_t newcomer) const = 0;

  /// Hears what newcomers and other hosts have to say. Called several times a second; never blocks.
  virtual void look() = 0;
  virtual bool has_other_hosts() const = 0;
  /// The others were at work already when this host's launcher came: those of its ranks that run are newcomers.
  virtual bool is_late() const { return false; }
  /// Whether, with all ranks of this host ended, those of other hosts still work. `ended`: some of ours have ended by
  /// themselves, well or not; else all are lost.
  virtual bool awaits_others(bool ended) const = 0;
  /// Fewer are left than the run wants.
  virtual bool is_too_small() const = 0;
  virtual std::optional<DistantEnd> distant_end() const = 0;
  /// Tells other hosts with what exit code this one's ranks have ended. Blocks for two seconds at most.
  virtual void end(int exit_code) = 0;
};

/// The part of a run that a launcher starts, and where its ranks and the other launchers find it.
struct OwnHost {
  ServedStore& store;
  int first;  // of its ranks
  int count;
  std::string run = {};      // the name of the run, where this host begins it
  Descriptor door = {};      // where other launchers report; none: there are no other hosts
  std::string address = {};  // by which they know this host; all but the first are told
};

/// How a roster deals with others.
struct RosterOptions {
  int ranks;                                            // of the whole run
  int least = 1;                                        // so many are wanted
  std::function<void(const std::string& message)> say;  // to the user
  std::chrono::milliseconds silent{2000};               // who is not heard of for so long is lost
  /// So long does such a host count among those of before. More than `silent`: those that were lost together may be
  /// missed one after the other.
  std::chrono::milliseconds remembered() const { return 2 * silent; }
};

/// Of all ranks.
std::unique_ptr<Roster> keep_roster(OwnHost own, RosterOptions options);

/// Kept by the launcher of one of `hosts`, whose doors are at `port`: by that of rank 0's host, unless that one finds
/// the others at work. Where it is lost another keeps it.
std::unique_ptr<Roster> share_roster(OwnHost own, const std::vector<std::string>& hosts, int port,
                                     RosterOptions options);

}  // namespace lockstep::launch
