// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/output.h"
#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// What a rank of a run is started with.
struct RankCommand {
  std::vector<std::string> program;                // looked up on PATH, and its arguments
  std::map<std::string, std::string> environment;  // changes to this process's own
  int stdin_fd = -1;                               // -1 is /dev/null
  bool captured = true;                            // output through pipes, else straight to where ours goes
  sigset_t signal_mask;
};

/// One output stream of a rank.
struct RankStream {
  int fd;  // ours, where it goes: 1 or 2
  Descriptor pipe;
  Lines lines;
};

/// A running rank: the leader of a process group of its own, so that it gets each signal once; it dies with the thread
/// that started it.
struct RankProcess {
  int rank = 0;
  pid_t process = -1;
  Descriptor end;  // readable once it has ended: a signal that says so may go to a thread that is not ours
  bool running = true;
  std::optional<std::chrono::steady_clock::time_point> stopped_at{};  // by a signal, and not continued since
  std::vector<RankStream> streams;
};

/// Throws launch::StartError when the program is not there or can't be run.
RankProcess start_rank(int rank, const RankCommand& command);

}  // namespace lockstep::launch
