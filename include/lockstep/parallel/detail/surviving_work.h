// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "lockstep/comm/membership.h"

namespace lockstep::parallel {

/// Whether an exception says that a process was lost.
bool is_loss(const std::exception& error);

/// Work that goes on when a process of the job is lost: the others meet again, take the newest copy of the state that
/// any of them has, and work on from there. A process that takes a lost one's place gets its state from the others. The
/// training of a run is such work (train/survive.h), and so is a program with a loop of its own (parallel/survive.h).
class SurvivingWork {
 public:
  virtual ~SurvivingWork() = default;

  /// Until the work is done. Each process calls it alike. False: the others had done all before this process took part.
  bool run(comm::Membership& membership);

 protected:
  /// The steps behind this process's copy; -1: it has none.
  virtual int64_t copied_steps() const = 0;
  virtual std::string copy_as_bytes() const = 0;
  virtual void take_copy(const std::string& bytes, const std::string& from) = 0;
  /// The steps that this process has done, those after the copy too.
  virtual int64_t steps_done() const = 0;

  /// What to work with in a generation, from the copy. Collective, as what follows.
  virtual void prepare(const comm::Group& group) = 0;
  /// What has happened since the last generation.
  virtual void say(const std::string& event) = 0;
  /// Goes on to the end; false where it stops for others to take part.
  virtual bool work() = 0;
  /// Lets go of what prepare() has made, which the others may wait for.
  virtual void end() = 0;
};

}  // namespace lockstep::parallel
