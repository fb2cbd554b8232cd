// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/launch/detail/fd.h"
#include "launch/output.h"

namespace lockstep::cli {

/// What a rank of a run is started with.
struct RankCommand {
  std::vector<std::string> program;                // looked up on PATH, and its arguments
  std::map<std::string, std::string> environment;  // changes to this process's own
  int stdin_fd = -1;                               // -1 is /dev/null
  bool captured = true;                            // output through pipes, else straight to where ours goes
  sigset_t signal_mask;
};

/// The program can't be started. The launcher's exit code says why as a shell's does.
class StartError : public std::runtime_error {
 public:
  StartError(int exit_code, const std::string& what) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// One output stream of a rank.
struct RankStream {
  int fd;  // ours, where it goes: 1 or 2
  Fd pipe;
  Lines lines;
};

/// A running rank: the leader of a process group of its own, so that it gets each signal once; it dies with the thread
/// that started it.
struct RankProcess {
  int rank = 0;
  pid_t process = -1;
  bool running = true;
  std::vector<RankStream> streams;
};

/// Throws StartError when the program is not there or can't be run.
RankProcess start_rank(int rank, const RankCommand& command);

}  // namespace lockstep::cli
