// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <string>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// Hands what is typed on to rank 0. A terminal stops a process outside of its foreground group that reads from it, and
/// rank 0 has a group of its own: so the launcher reads, and only while it is in the foreground itself.
class TerminalInput {
 public:
  TerminalInput();
  /// The end to start rank 0 with; closed here once it has started.
  Descriptor& rank_end() { return pipe_.read; }
  /// What to poll for now; fd is -1 while there is nothing to do.
  pollfd wanted() const;
  void advance();

 private:
  Pipe pipe_;
  std::string typed_;
};

}  // namespace lockstep::launch
