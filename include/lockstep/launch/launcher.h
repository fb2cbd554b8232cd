// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::launch {

/// What is started on this host, and how its processes find those of other hosts.
struct Options {
  std::vector<std::string> program;                     ///< looked up on PATH, and its arguments
  int processes = 1;                                    ///< ranks on this host
  std::vector<std::string> hosts = {};                  ///< all hosts of the run, rank 0's first; empty: this one alone
  std::optional<int> rank_offset = {};                  ///< the rank of this host's first process; with several hosts
  std::optional<int> world_size = {};                   ///< ranks on all hosts; else `processes` on each of them
  int port = 29511;                                     ///< where rank 0's host is found by several hosts
  std::optional<double> timeout = {};                   ///< seconds that an operation may wait for another rank
  double grace = 5;                                     ///< seconds between SIGTERM and SIGKILL when a rank has failed
  bool no_prefix = false;                               ///< the ranks write to our standard streams as they are
  std::map<std::string, std::string> environment = {};  ///< for all ranks, on top of this process's own
  /// A rank that a signal kills is no failure while `least` are left: the others go on with what it was to do, and
  /// learn from the store who is left (comm::Membership).
  bool survive = false;
  bool respawn = false;  ///< with survive: a new process takes the place of a lost one, as soon as it is ready
  int least = 1;         ///< with survive: with fewer ranks the run ends, after a checkpoint
  int restarts = 0;      ///< how often a run that has failed is started again
  /// A signal that asked for the end is a failure even where every rank ended well, as one does that was about to.
  bool ends_on_signal = false;
};

/// The program can't be started. Its exit code says why as a shell's does: 127 where it is not found, else 126.
class StartError : public std::runtime_error {
 public:
  StartError(int exit_code, const std::string& what) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Starts the ranks of this host and stays until they have ended, as `lockstep run` does: each finds its place in RANK,
/// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Passes their output on, a line at a time with
/// the rank before it, and says on standard error what became of those that failed. Returns the exit code of the first
/// rank that failed (128 + signal where one killed it), or 0. A run that fails is started again `restarts` times, with
/// TORCHELASTIC_RESTART_COUNT in its environment, unless a signal to this process asked for its end. Throws Error on
/// options that don't fit together, and StartError.
///
/// While it runs it has this process's signals: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP,
/// SIGCONT and SIGCHLD are blocked and go to the ranks, SIGPIPE is ignored; afterwards all is as before. Standard
/// streams that are closed become /dev/null for good. It forks: call it while this process has no other threads.
int run(const Options& options);

}  // namespace lockstep::launch
